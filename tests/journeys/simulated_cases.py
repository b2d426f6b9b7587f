"""What users asked about serving over time, simulated. What a case does not state is said where it is assumed."""

from __future__ import annotations

from functools import cache

from infcalc.api.deployment import Ask
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import SimulationResult
from infcalc.api.sweeping import parse_sweep
from infcalc.api.workload_ask import WorkloadAsk

Figures = dict[str, float | bool | str]


def _ran(ask: Ask, load: WorkloadAsk, *, prefix_caching: bool = True) -> SimulationResult:
    return simulate(ask, SimulationAsk(load=load, prefix_caching=prefix_caching)).result


@cache
def closed_loop_over_solo() -> Figures:
    """UC-049: TTFT of so many clients over that of one. Model and GPU are not stated: the reference deployment."""

    def ttft_s(prompt: int, answer: int, clients: int, number: int) -> float:
        load = WorkloadAsk(
            num_clients=clients, num_requests=number, input_tokens=str(prompt), output_tokens=str(answer)
        )
        ttft = _ran(Ask(), load, prefix_caching=False).ttft_s
        assert ttft is not None
        return ttft.mean

    factors = []
    # 8,192 tokens are all that this model takes, answers included.
    for prompt, answer in ((1024, 128), (4096, 256), (8192 - 128, 128)):
        alone = ttft_s(prompt, answer, 1, 3)
        factors += [ttft_s(prompt, answer, clients, 4 * clients) / alone for clients in (4, 16, 48)]
    # What the case is about: no factor stands for all.
    assert max(factors) > 5 * min(factors)
    return {"ttft_factor_min": min(factors), "ttft_factor_max": max(factors)}


@cache
def gain_of_hits() -> Figures:
    """UC-118: neither model nor lengths are known: the reference deployment, 1,000 tokens in and 300 out."""
    load = WorkloadAsk(
        num_clients=64, num_requests=512, input_tokens="54", output_tokens="300", shared_prefix="tokens=946"
    )
    found, computed = (_ran(Ask(), load, prefix_caching=cached) for cached in (True, False))
    assert abs(found.prefix_hit_rate_fraction - 0.9459) < 0.01
    return {"throughput_gain_pct": 100 * (found.output_tokens_per_s / computed.output_tokens_per_s - 1)}


@cache
def past_the_cache() -> Figures:
    """UC-126: agents of three turns whose sessions take, at 7 of them, the 92 % of the cache that the case states.

    Tried are 5, 7 and 20 of them: every step of prompts of 200,000 tokens is computed.
    """
    ask = Ask(models=("minimax-m3",), gpus=("h200",), num_gpus=8, weights="mxfp8")
    turns, pool = 3, 1_666_320
    tokens = 0.92 * pool / 7 / turns

    def run(agents: int) -> SimulationResult:
        load = WorkloadAsk(
            arrivals="once",
            num_requests=agents * turns,
            turns=str(turns),
            input_tokens=str(round(tokens - 600)),
            output_tokens="600",
        )
        found = _ran(ask, load)
        assert found.cache_tokens == pool
        return found

    rates = {agents: run(agents).output_tokens_per_s for agents in (5, 7, 20)}
    return {
        "best_concurrency": max(rates, key=lambda agents: rates[agents]),
        "tok_s_c20_over_c7": rates[20] / rates[7],
    }


@cache
def agents_on_one_card() -> float:
    """UC-131: the knee of clients whose requests, of 500 tokens of answer, are as long as 7 of them fill the cache."""
    ask = Ask(models=("qwen3.5-27b",), gpus=("l40s",), num_gpus=1, weights="fp8", kv_dtypes=("fp8",))
    load = WorkloadAsk(num_requests=30, input_tokens="38000", output_tokens="500")
    curve = simulate(ask, SimulationAsk(load=load, sweep=parse_sweep("concurrency=5,7,10"))).result.sweep
    assert curve is not None
    uses = [point.kv_usage_fraction.max for point in curve.points if point.kv_usage_fraction is not None]
    assert uses[0] < 0.75
    assert uses[1] > 0.95
    assert curve.knee is not None
    # The greatest throughput is no point to work at: there a request waits longer than it is served.
    assert curve.points[2].queue_s is not None
    assert curve.points[2].queue_s.p50 > 10
    return curve.knee

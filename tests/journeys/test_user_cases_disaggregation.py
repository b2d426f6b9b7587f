"""Numbers that users asked about in public on prefill and decode apart, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.disaggregation import HANDOVERS
from infcalc.api.disaggregation_ask import Beside, PoolsAsk
from infcalc.api.replicas import Policy
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import SimulationResult
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape
from infcalc.simulation.link import Link
from infcalc.simulation.request import Request
from tests.journeys.published import assert_holds, assert_unchanged, cases_of, checks_of
from tests.simulation.test_disaggregated import fleet_of

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases_disaggregation.yaml"
OTHERS = tuple(PUBLISHED.with_name(f"user_cases{room}.yaml") for room in ("", "_memory", "_speed", "_simulation"))
TARGET_TOKENS_PER_S_PER_USER = 38


def _sent(num_clients: int, prompt: int, answer: int, times: int) -> WorkloadAsk:
    return WorkloadAsk(
        num_requests=times * num_clients, num_clients=num_clients, input_tokens=str(prompt), output_tokens=str(answer)
    )


def _llama(num_clients: int, tp: int, pools: PoolsAsk | None = None) -> SimulationResult:
    """Eight H100 of one server, 70B in FP8: plain replicas of a TP, or pools; no prefix hits, as the case says."""
    ask = Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=tp, weights="fp8", kv_dtypes=("fp8",))
    return simulate(
        ask,
        SimulationAsk(
            load=_sent(num_clients, 3000, 150, 6),
            num_replicas=None if pools is not None else 8 // tp,
            prefix_caching=False,
            pools=pools,
        ),
    ).result


def _most_at_target(results: list[SimulationResult]) -> float:
    """Return the most tokens per second where each user still gets what is wanted."""
    kept = [
        one.output_tokens_per_s
        for one in results
        if (one.output_tokens_per_s_per_user or 0) >= TARGET_TOKENS_PER_S_PER_USER
    ]
    return max(kept)


def _when_it_pays() -> dict[str, float | bool]:
    loads = (32, 40, 48, 64)
    layouts = (
        PoolsAsk(num_prefill=4, num_decode=1, prefill_tp=1, decode_tp=4, beside=Beside.NONE),
        PoolsAsk(num_prefill=6, num_decode=1, prefill_tp=1, decode_tp=2, beside=Beside.NONE),
    )
    plain = [_llama(clients, tp) for tp in (2, 4, 8) for clients in loads]
    apart = [_llama(clients, 4, pools) for pools in layouts for clients in loads]
    told = apart[0].disaggregation
    assert told is not None
    assert told.num_gpus == 8
    # The network of 400 Gb/s of one GPU: a cache of the case crosses alone in 9.8 ms.
    assert told.link.bytes_per_s == 50e9
    assert told.transfer_s is not None
    assert told.transfer_s.p50 == pytest.approx(9.83e-3, rel=0.01)
    return {
        "gain": _most_at_target(apart) / _most_at_target(plain),
        "kv_transfer_mb": told.link.sent_bytes / told.link.num_transfers / 1e6,
    }


def _a_weak_baseline() -> dict[str, float | bool]:
    better = []
    for clients, prompt, answer in ((32, 1000, 500), (128, 3000, 150)):
        result = simulate(
            Ask(models=("gpt-oss-120b",), gpus=("h200",), num_gpus=4),
            SimulationAsk(load=_sent(clients, prompt, answer, 2), pools=PoolsAsk(num_prefill=1, num_decode=1)),
        ).result
        told = result.disaggregation
        assert told is not None
        # Judged against all of 8 x TP 1 to 1 x TP 8, best first.
        assert sorted(one.num_gpus for one in told.aggregated) == [1, 2, 4, 8]
        assert told.gain_factor == pytest.approx(result.output_tokens_per_s / told.aggregated[0].output_tokens_per_s)
        assert told.gain_factor is not None
        better.append(told.gain_factor > 1)
    return {"disagg_1x4_1x4_beats_agg_best": any(better)}


def _what_the_sender_sees() -> dict[str, float | bool]:
    ms = PS_PER_S // 1000

    def timer(shape: BatchShape) -> int:
        return 420 * ms if shape.prefills else 18 * ms

    # 24 bytes of cache at 2,000 per second: 12 ms.
    load = [Request(arrival_ps=0, prompt_tokens=8, output_tokens=3)]
    fleet = fleet_of(load, HANDOVERS[Policy.VLLM], timer=timer, link=Link(bytes_per_s=2000))
    (record,) = fleet.run()
    assert record.first_token_ps is not None
    # Both are told: prompt done, and first token seen.
    assert fleet.transfers[0].computed_ps == 420 * ms
    return {"ttft_ms": record.first_token_ps / ms}


ANSWERS: dict[str, Callable[[], dict[str, float | bool]]] = {
    "UC-144": _when_it_pays,
    "UC-145": _a_weak_baseline,
    "UC-147": _what_the_sender_sees,
}
_ANSWERED: dict[str, dict[str, float | bool]] = {}


@pytest.mark.parametrize(("case", "check"), checks_of(PUBLISHED))
def test_a_published_number_comes_out(case: str, check: dict[str, Any]) -> None:
    if case not in _ANSWERED:
        _ANSWERED[case] = ANSWERS[case]()
    assert_holds(check, _ANSWERED[case][check["key"]])


def test_every_case_is_answered_and_no_number_was_changed() -> None:
    assert {case["id"] for case in cases_of(PUBLISHED)} == set(ANSWERS)
    assert_unchanged(PUBLISHED, {"disagg"}, OTHERS)

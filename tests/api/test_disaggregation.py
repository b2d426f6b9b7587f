"""Pools of prefill and decode of real deployments: figures agree with one another, and what is asked is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask
from infcalc.api.disaggregation_ask import Beside, LinkAsk, PoolsAsk, Shared, parse_link
from infcalc.api.disaggregation_nouns import Disaggregation
from infcalc.api.objectives import parse_slo
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import SimulationResult
from infcalc.api.sweeping import parse_sweep
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import UsageError

SMALL = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1)
KV_BYTES_PER_TOKEN = 131_072
BUSY = WorkloadAsk(requests_per_s=12.0, num_requests=150)
ALONE = PoolsAsk(num_prefill=1, num_decode=2, beside=Beside.NONE)


def ran(
    pools: PoolsAsk = ALONE, load: WorkloadAsk = BUSY, ask: Ask = SMALL, **asked: object
) -> tuple[SimulationResult, Disaggregation]:
    result = simulate(ask, SimulationAsk(load=load, pools=pools, **asked)).result  # type: ignore[arg-type]
    assert result.disaggregation is not None
    return result, result.disaggregation


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_figures_agree_with_one_another(engine: str) -> None:
    result, told = ran(ask=replace(SMALL, engine=engine), load=replace(BUSY, input_tokens="700"))
    assert result.completed == result.requests == told.link.num_transfers == 150
    assert told.link.sent_bytes == 150 * 700 * KV_BYTES_PER_TOKEN
    assert told.num_gpus == 3
    assert told.transfer_s is not None
    assert told.handover_s is not None
    assert told.prefill_done_s is not None
    assert told.room_wait_s is not None
    assert result.ttft_s is not None
    assert told.transfer_s.p50 == pytest.approx(700 * KV_BYTES_PER_TOKEN / 50e9, rel=0.01)
    # What the sender sees is later than the prompt's end, by the hand-over at least.
    assert result.ttft_s.mean >= told.prefill_done_s.mean + told.handover_s.mean - 1e-9
    assert told.link.utilization_fraction == pytest.approx(
        told.link.sent_bytes / told.link.bytes_per_s / result.duration_s, rel=0.01
    )
    assert result.steps == told.prefill.steps + told.decode.steps
    assert 0 < told.prefill.busy_fraction < told.decode.busy_fraction <= 1
    assert told.aggregated == ()


def test_a_slow_link_is_in_the_first_token_and_in_nothing_else() -> None:
    one = WorkloadAsk(num_clients=1, num_requests=4, input_tokens="1000", output_tokens="20")
    fast, _ = ran(load=one)
    slow, told = ran(PoolsAsk(num_prefill=1, num_decode=2, link=LinkAsk(bytes_per_s=1e9), beside=Beside.NONE), one)
    assert told.transfer_s is not None
    assert fast.ttft_s is not None
    assert slow.ttft_s is not None
    assert told.transfer_s.mean == pytest.approx(1000 * KV_BYTES_PER_TOKEN / 1e9)
    more_s = 1000 * KV_BYTES_PER_TOKEN * (1 / 1e9 - 1 / 50e9)
    assert slow.ttft_s.mean - fast.ttft_s.mean == pytest.approx(more_s, rel=1e-6)
    assert slow.tpot_s == fast.tpot_s


def test_each_pool_may_have_its_own_tp_and_the_network_of_its_gpus() -> None:
    result, told = ran(replace(ALONE, prefill_tp=2, decode_tp=1))
    assert (told.prefill.tp, told.decode.tp, told.num_gpus) == (2, 1, 4)
    assert told.link.bytes_per_s == 100e9
    assert result.num_gpus == 1
    _, pooled = ran(replace(ALONE, num_prefill=2, link=LinkAsk(shared=Shared.POOL)))
    assert (pooled.link.num_links, pooled.link.bytes_per_s) == (1, 100e9)
    _, apart = ran(replace(ALONE, num_prefill=2))
    assert (apart.link.num_links, apart.link.bytes_per_s) == (2, 50e9)


WAITING = WorkloadAsk(num_clients=24, num_requests=150)
TWO = PoolsAsk(num_prefill=1, num_decode=1)


def test_plain_replicas_on_the_same_gpus_stand_beside() -> None:
    _, told = ran(TWO, WAITING)
    assert sorted((one.num_replicas, one.num_gpus) for one in told.aggregated) == [(1, 2), (2, 1)]
    plain = simulate(SMALL, SimulationAsk(load=WAITING, num_replicas=2)).result
    (mine,) = [one for one in told.aggregated if one.num_gpus == 1]
    assert plain.ttft_s is not None
    assert (mine.output_tokens_per_s, mine.ttft_s) == (plain.output_tokens_per_s, plain.ttft_s.mean)


@pytest.mark.parametrize(
    ("load", "limits", "quantity"),
    [
        (WAITING, (), "output_tokens_per_s"),
        (WAITING, ("ttft=30ms",), "goodput_requests_per_s"),
        (BUSY, (), "e2e_s"),
        (BUSY, ("ttft=30ms",), "goodput_fraction"),
    ],
    ids=["waiting", "waiting with limits", "open", "open with limits"],
)
def test_layouts_are_judged_by_what_the_load_leaves_to_them(
    load: WorkloadAsk, limits: tuple[str, ...], quantity: str
) -> None:
    result, told = ran(TWO, load, slo=parse_slo(limits))
    assert told.gain_of == quantity
    values = [getattr(one, quantity) for one in told.aggregated]
    assert values == sorted(values, reverse=quantity != "e2e_s")
    mine = getattr(result, quantity)
    if quantity == "e2e_s":
        assert told.gain_factor == pytest.approx(values[0] / mine.mean)
    else:
        assert told.gain_factor == pytest.approx(mine / values[0])


def test_the_plain_replicas_may_be_those_of_the_decode_pool_alone() -> None:
    _, told = ran(replace(TWO, beside=Beside.SAME), WAITING)
    assert [(one.num_replicas, one.num_gpus) for one in told.aggregated] == [(2, 1)]


def test_all_gpus_of_both_pools_are_paid() -> None:
    pools = replace(ALONE, prefill_tp=2)
    answer = simulate(SMALL, SimulationAsk(load=BUSY, pools=pools), terms=Terms(usd_per_hour=3.6), explain=True)
    result = answer.result
    assert result.usd_per_million_output_tokens == pytest.approx(4 * 1e-3 / result.output_tokens_per_s * 1e6)
    told = {one.quantity: one for one in answer.explanations}
    assert "3.6 x 4 / 3600" in told["usd_per_million_output_tokens"].substituted
    assert "disaggregation.transfer_s" in told


def test_a_sweep_runs_on_pools_too() -> None:
    result = simulate(
        SMALL,
        SimulationAsk(load=WorkloadAsk(num_requests=60), pools=ALONE, sweep=parse_sweep("rate=2,20")),
    ).result
    assert result.sweep is not None
    first, last = (point.disaggregation for point in result.sweep.points)
    assert first is not None
    assert last is not None
    assert first.link.utilization_fraction < last.link.utilization_fraction


def test_a_pool_that_does_not_fit_is_no_error() -> None:
    pools = PoolsAsk(num_prefill=1, num_decode=1, prefill_tp=8, decode_tp=1)
    answer = simulate(Ask(models=("llama3-70b",), gpus=("h100",)), SimulationAsk(load=BUSY, pools=pools))
    assert answer.exit_code == 3
    assert answer.result.missing_bytes > 0
    assert answer.result.disaggregation is None


def test_lanes_of_a_mixture_of_experts_are_handed_over_to_too() -> None:
    ask = Ask(models=("qwen3-30b-a3b",), gpus=("h100",), num_gpus=2, dp=2, ep=2)
    result, told = ran(PoolsAsk(num_prefill=1, num_decode=1, beside=Beside.NONE), ask=ask)
    assert result.num_lanes == 4
    assert told.link.num_links == 1
    assert told.link.num_transfers == 150


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("50GB/s", LinkAsk(bytes_per_s=50e9)),
        ("latency=2ms", LinkAsk(latency_s=2e-3)),
        ("bandwidth=1 TB/s, latency=1ms, shared=POOL", LinkAsk(bytes_per_s=1e12, latency_s=1e-3, shared=Shared.POOL)),
    ],
)
def test_links_are_read(text: str, wanted: LinkAsk) -> None:
    assert parse_link(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["fast", "50", "0GB/s", "50GB/s,bandwidth=3GB/s", "latency=1h", "shared=all", "speed=3GB/s", "latency=-1s"],
)
def test_links_that_are_none_are_refused_with_the_mend(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_link(text)
    assert refused.value.place == "--kv-link"
    assert "50GB/s" in (refused.value.hint or "")

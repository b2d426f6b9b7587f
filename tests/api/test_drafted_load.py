"""Drafting in simulations: rounds timed as speculate prices them, gains and losses under load, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.drafted_load import drafted_load
from infcalc.api.drafted_steps import at_context
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.api.rounds import target_timer
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import RunResult, SimulationResult
from infcalc.api.speed import Site, machine_of, site_of
from infcalc.api.sweeping import parse_sweep
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import InfcalcError, UsageError
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill
from infcalc.speculation.linear import UniformAcceptance
from infcalc.speculation.priced import round_time
from infcalc.speculation.spread import tokens_per_round_variance

H100 = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1)
EAGLE3 = DraftAsk(methods=("eagle3",), num_draft_tokens=5, acceptance=(0.8,))
BUSY = WorkloadAsk(requests_per_s=12.0, num_requests=250)


def site(ask: Ask = H100) -> Site:
    catalog = load(ask)
    (deployment,) = resolve(ask, catalog)
    return site_of(ask, deployment, catalog)


def ran(load: WorkloadAsk = BUSY, ask: Ask = H100, draft: DraftAsk = EAGLE3, **asked: object) -> SimulationResult:
    return simulate(ask, SimulationAsk(load=load, draft=draft, **asked)).result  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("draft", "ask"),
    [
        (EAGLE3, H100),
        (DraftAsk(methods=("ngram",), num_draft_tokens=3), H100),
        (DraftAsk(methods=("draft-model",), num_draft_tokens=4), H100),
        (DraftAsk(draft_model="llama3.2-1b", num_draft_tokens=2), H100),
        (DraftAsk(methods=("medusa",)), H100),
        (DraftAsk(methods=("eagle3-tree",)), H100),
        (EAGLE3, replace(H100, engine="vllm", engine_version="0.7.3")),
        (DraftAsk(methods=("mtp",), num_draft_tokens=1), Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8)),
        (EAGLE3, Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=4)),
    ],
    ids=["eagle3", "ngram", "draft-model", "named", "medusa", "tree", "expands", "mtp", "tp4"],
)
def test_rounds_take_what_speculate_says(draft: DraftAsk, ask: Ask) -> None:
    at = site(ask)
    drafted = drafted_load(draft, at)
    timer = drafted.timer(machine_of(at))
    way = drafted.way
    for batch in (1, 7, 64, 256):
        for context in (5, 300, 2000, 7000):
            rig, drafting = at_context(way.drafting, way.passes, drafted.rig, context)
            wanted = round_time(drafting, target_timer(rig), batch, drafted.num_draft_tokens)
            found = timer(BatchShape(num_decodes=batch, decode_context_tokens=batch * context)) / PS_PER_S
            assert found == pytest.approx(wanted, rel=0.01), (batch, context)


def test_steps_with_prompts_draft_too_and_cost_more_than_either() -> None:
    at = site()
    timer = drafted_load(EAGLE3, at).timer(machine_of(at))
    prompts = (Prefill(new_tokens=600, cached_tokens=0),)
    alone = timer(BatchShape(num_decodes=8, decode_context_tokens=8000))
    prompt = timer(BatchShape(num_decodes=0, decode_context_tokens=0, prefills=prompts))
    both = timer(BatchShape(num_decodes=8, decode_context_tokens=8000, prefills=prompts))
    assert max(alone, prompt) < both < alone + prompt


def test_a_lone_request_gains_what_speculate_says() -> None:
    """One user, answers of equal length: the step times of both runs are those of batch 1."""
    alone = WorkloadAsk(num_clients=1, num_requests=60, input_tokens="500", output_tokens="400")
    result = ran(alone)
    row = speculate(H100, replace(EAGLE3, batch=1), contexts=(700,)).result.rows[0]
    assert result.tokens_per_round is not None
    assert result.speedup is not None
    # Against the tokens that came, not those that were to be expected; the last round of an answer is cut short.
    wanted = row.speedup * result.tokens_per_round / row.tokens_per_round
    assert result.speedup == pytest.approx(wanted, rel=0.02)
    assert result.speedup < wanted


def test_tokens_per_round_are_those_of_the_law_within_their_interval() -> None:
    result = ran(WorkloadAsk(requests_per_s=12.0, num_requests=1500))
    assert result.tokens_per_round is not None
    law = UniformAcceptance(alpha=0.8)
    error = math.sqrt(tokens_per_round_variance(law, 5) / result.rounds)
    assert result.tokens_per_round == pytest.approx(3.68928, abs=3 * error)
    assert result.acceptance == pytest.approx(0.8, abs=0.005)
    assert result.rounds > 50_000


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.0, 1.0), (1.0, 6.0)])
def test_certain_acceptance_and_none(acceptance: float, tokens: float) -> None:
    result = ran(draft=replace(EAGLE3, acceptance=(acceptance,)))
    assert result.tokens_per_round == tokens
    assert result.acceptance == pytest.approx(acceptance, abs=1e-6)
    assert result.speedup is not None
    assert (result.speedup > 1) == (acceptance > 0)


@pytest.mark.parametrize("policy", ["static", "continuous", "vllm"])
@pytest.mark.parametrize("number", [1, 3])
def test_step_by_step_gives_the_same_figures(policy: str, number: int) -> None:
    load = replace(BUSY, shared_prefix="num=3,tokens=300,share=0.7", num_requests=150)

    def figures(run: RunResult) -> RunResult:
        assert run.itl_s is not None
        return replace(run, over_time=(), itl_s=replace(run.itl_s, mean=round(run.itl_s.mean, 12)))

    fast, slow = (ran(load, policy=policy, num_replicas=number, step_by_step=one) for one in (False, True))
    assert figures(replace(fast, compare=())) == figures(replace(slow, compare=()))
    assert [figures(one) for one in fast.compare] == [figures(one) for one in slow.compare]
    assert fast.prefix_hit_rate_fraction > 0.1


def test_beside_it_stands_the_same_without_drafting() -> None:
    result = ran()
    plain = simulate(H100, SimulationAsk(load=BUSY)).result
    drafted, without = result.compare
    assert (drafted.method, without.method, plain.method) == ("eagle3", None, None)
    # Both have the same requests; the plain one has the whole pool.
    assert without.e2e_s == plain.e2e_s
    assert without.ttft_s == plain.ttft_s
    assert plain.compare == ()
    assert plain.speedup is None
    assert result.cache_tokens < plain.cache_tokens
    assert drafted.tpot_s is not None
    assert without.tpot_s is not None
    assert result.speedup == pytest.approx(without.tpot_s.mean / drafted.tpot_s.mean)
    assert result.speedup_throughput == pytest.approx(drafted.output_tokens_per_s / without.output_tokens_per_s)


def test_lookups_take_no_memory_and_heads_lose_a_block_of_each_hit() -> None:
    load = replace(BUSY, shared_prefix="tokens=320")
    looked_up, headed = (
        ran(load, draft=DraftAsk(methods=(method,), num_draft_tokens=3)) for method in ("ngram", "eagle3")
    )
    plain = looked_up.compare[1]
    assert looked_up.cache_tokens == simulate(H100, SimulationAsk(load=load)).result.cache_tokens
    assert looked_up.prefix_hit_rate_fraction == pytest.approx(plain.prefix_hit_rate_fraction, rel=0.02)
    assert headed.prefix_hit_rate_fraction < plain.prefix_hit_rate_fraction * (1 - 0.5 * 16 / 320)


def test_drafting_pays_up_to_a_load_and_loses_beyond() -> None:
    asked = SimulationAsk(
        load=WorkloadAsk(num_requests=500),
        draft=replace(EAGLE3, acceptance=(0.5,)),
        sweep=parse_sweep("rate=2,8,32"),
    )
    answer = simulate(replace(H100, gpus=("a100",)), asked, explain=True)
    curve = answer.result.sweep
    assert curve is not None
    gains = [point.speedup_e2e for point in curve.points]
    assert all(gain is not None for gain in gains)
    assert gains[0] > 1.2  # type: ignore[operator]
    assert gains[-1] < 0.9  # type: ignore[operator]
    assert curve.drafting_pays_up_to == max(
        point.value for point in curve.points if point.speedup_e2e is not None and point.speedup_e2e >= 1
    )
    told = {one.quantity: one.substituted for one in answer.explanations}
    assert {"round_s", "tokens_per_round", "speedup"} <= set(told)
    given = {item.name: (item.value, item.origin) for item in answer.inputs}
    assert given["method"] == ("eagle3", "given")
    assert given["num_draft_tokens"] == (5, "given (--num-draft-tokens)")
    assert given["acceptance"] == ((0.5,), "given (--acceptance)")


def test_what_an_engine_does_not_draft_is_said_and_a_length_is_chosen() -> None:
    answer = simulate(H100, SimulationAsk(load=BUSY, draft=DraftAsk(methods=("eagle3-tree",))))
    assert any("vllm does not draft by eagle3-tree" in one for one in answer.warnings)
    chosen = ran(draft=DraftAsk(methods=("eagle3",)))
    alone = speculate(H100, DraftAsk(methods=("eagle3",)), contexts=(1024,)).result.rows[0]
    assert chosen.num_draft_tokens == alone.num_draft_tokens


@pytest.mark.parametrize(
    ("draft", "asked", "place"),
    [
        (DraftAsk(acceptance=(0.8,)), {}, "--acceptance"),
        (DraftAsk(num_draft_tokens=3), {}, "--num-draft-tokens"),
        (DraftAsk(accepted_tokens=(3,), num_drafts=5), {}, "--accepted"),
        (DraftAsk(methods=("eagle3", "ngram")), {}, "--method"),
        (DraftAsk(methods=("guessing",)), {}, "--method"),
        (replace(EAGLE3, acceptance=(1.5,)), {}, "--acceptance"),
        (replace(EAGLE3, acceptance=(0.3, 0.5)), {}, "--acceptance"),
        (replace(EAGLE3, acceptance=(0.5, 0.3)), {}, "--num-draft-tokens"),
        (replace(EAGLE3, num_draft_tokens=0), {}, "--num-draft-tokens"),
        (replace(EAGLE3, num_draft_tokens=5000), {}, "--num-draft-tokens"),
        (EAGLE3, {"policy": "sglang"}, "--policy"),
        (EAGLE3, {"compared": ("vllm", "sarathi")}, "--policy"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(draft: DraftAsk, asked: dict[str, object], place: str) -> None:
    with pytest.raises(UsageError) as refused:
        simulate(H100, SimulationAsk(load=BUSY, draft=draft, **asked))  # type: ignore[arg-type]
    assert refused.value.place == place


def test_an_unknown_draft_is_an_unknown_name() -> None:
    with pytest.raises(InfcalcError) as refused:
        ran(draft=DraftAsk(draft_model="nosuch"))
    assert refused.value.exit_code == 5

"""The facts that rules name in braces: what was found of this case, in words, and the numbers that options take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.api.diagnosing_changes import larger_budget_tokens, more_memory, stages_of
from infcalc.api.judging import Measurement
from infcalc.api.measured_causes import Loss
from infcalc.api.measured_comparing import shown_value
from infcalc.api.measured_figures import predicted
from infcalc.api.measured_normal import position_text
from infcalc.diagnosis.signals import Signal
from infcalc.errors import InfcalcError
from infcalc.evidence.nouns import Quantity
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.diagnosing_drafting import Drafted
    from infcalc.api.diagnosing_model import Modelled
    from infcalc.api.diagnosing_readings import Sight
    from infcalc.api.measured_nouns import FigureLine
    from infcalc.diagnosis.signals import Readings

_BOUNDS: Final = {
    Loss.BANDWIDTH: "memory bandwidth",
    Loss.COMPUTE: "compute",
    Loss.OVERHEAD: "engine overhead",
    Loss.COMMUNICATION: "message",
    Loss.INTERFERENCE: "prompt interference",
    Loss.QUEUEING: "queue",
    Loss.FRONT_END: "front end",
}
_NAMES: Final = {
    Quantity.TPOT: "time per token",
    Quantity.PER_USER: "tokens/s of a user",
    Quantity.ITL: "gap between tokens",
    Quantity.OUTPUT_PER_S: "output tokens/s",
    Quantity.INPUT_PER_S: "prompt tokens/s",
    Quantity.TOTAL_PER_S: "tokens/s",
    Quantity.E2E: "whole request",
    Quantity.PREFILL: "prefill",
}
_JUDGED: Final = frozenset({"tpot_s", "e2e_s", "output_tokens_per_s", "output_tokens_per_s_per_user", "requests_per_s"})
_FIRST_ONLY: Final = frozenset({Quantity.INPUT_PER_S, Quantity.PREFILL})
_NETWORK_BYTES_PER_S: Final = 50e9
"""A port of 400 Gbit/s, of which each GPU of such machines has one."""
_MOST_SUSPECTS: Final = 3
_WORTH_SAYING: Final = 0.0005
_GOOD_USE: Final = 0.9


class Facts(dict[str, str]):
    """Facts by name; one that is not known is nothing in a sentence, and ``...`` in an option."""

    def __missing__(self, key: str) -> str:
        """Return what stands for a fact that is not known."""
        return "..." if key in _NUMBERS else ""


_NUMBERS: Final = frozenset(
    {
        "more_memory",
        "more_sequences",
        "fewer_sequences",
        "twice_tp",
        "larger_budget",
        "half_tp",
        "half_budget",
        "stages",
        "tp_of_stage",
        "best_drafts",
    }
)


def facts_of(
    model: Modelled, sight: Sight, drafted: Drafted | None, readings: Readings, given: Mapping[str, str]
) -> Facts:
    """Return the facts of a case; ``given`` are those that others found."""
    facts = Facts(given)
    for name, signal in (
        ("impossible", Signal.IMPOSSIBLE),
        ("contradictions", Signal.CONTRADICTIONS),
        ("kernels", Signal.SLOW_KERNELS),
        ("unit", Signal.THOUSANDFOLD),
    ):
        reading = readings.get(signal)
        facts[name] = "" if reading is None else reading.shown
    for name, signal in (
        ("kv_room", Signal.DEMAND_OVER_ROOM),
        ("seats", Signal.DEMAND_OVER_SEATS),
        ("messages", Signal.COMMUNICATION_SHARE),
        ("captured", Signal.RUNNING_OVER_CAPTURED),
        ("front", Signal.FRONT_END_SHARE),
        ("prefill", Signal.PREFILL_SHARE),
        ("decode", Signal.BANDWIDTH_SHARE),
        ("drafting", Signal.DRAFTING_SPEEDUP),
        ("budget", Signal.BUDGET_OVER_DEFAULT),
        ("offload", Signal.OFFLOADED),
        ("wait", Signal.WAITING_SHARE),
    ):
        reading = readings.get(signal)
        if reading is not None:
            facts[name] = f": {reading.shown}"
    facts["thrown_away"] = _thrown_away(model, readings)
    facts["or_was"] = ", or was: it has room now" if _has_room_now(readings) else ""
    rounds = readings.get(Signal.TOKENS_PER_ROUND)
    facts["rounds"] = f"{rounds.value:.2f} tokens" if rounds is not None else "the tokens"
    if drafted is not None and drafted.num_best_drafts is not None:
        facts["best_drafts"] = str(drafted.num_best_drafts)
    batch = readings.get(Signal.BATCH)
    facts["batch"] = "so many sequences" if batch is None else batch.shown
    _hits(facts, model, readings)
    _numbers(facts, model)
    _transfer(facts, model, readings)
    line = sight.line()
    if line is not None:
        _judged(facts, line, model, readings)
    return facts


def _thrown_away(model: Modelled, readings: Readings) -> str:
    """Say what preemptions cost: prompt and half of the answer are prefilled once more, at the price of a prompt.

    An upper end: what the prefix cache still holds is not computed again (vLLM V1 and SGLang recompute, and both look
    there first).
    """
    each, made = readings.value(Signal.PREEMPTED_SHARE), model.made
    if not each or made is None or made.run is None or not made.run.asked.prompt_tokens:
        return ""
    asked, result = made.run.asked, made.result
    computed = max(1.0, asked.prompt_tokens - asked.cached_tokens)
    again = each * (asked.prompt_tokens + asked.answer_tokens / 2) / computed
    share = result.prefill_time_fraction * again
    return f", which takes up to {share:.1%} of the GPU's time once more (the model)" if share >= _WORTH_SAYING else ""


def _has_room_now(readings: Readings) -> bool:
    """Return whether the cache has room where it is looked at, whatever was counted before; SGLang calls 0.9 good."""
    usage, demand = readings.value(Signal.KV_USAGE), readings.value(Signal.DEMAND_OVER_ROOM)
    return usage is not None and usage < _GOOD_USE and (demand is None or demand < 1)


def _numbers(facts: Facts, model: Modelled) -> None:
    if model.found is None:
        return
    deployment = model.found.deployment
    budget, ranks = deployment.max_num_batched_tokens, deployment.parallelism
    tp, pp = stages_of(deployment)
    facts |= {
        "more_sequences": str(2 * deployment.max_num_seqs),
        "twice_tp": str(2 * ranks.tp),
        "half_tp": str(max(1, ranks.tp // 2)),
        "larger_budget": str(larger_budget_tokens(model.found.site)),
        "half_budget": str(budget // 2),
        "stages": str(pp),
        "tp_of_stage": str(tp),
    }
    if deployment.fraction is not None:
        facts["more_memory"] = f"{more_memory(deployment.fraction):g}"
    if model.made is not None and model.made.run is not None:
        facts["fewer_sequences"] = str(max(1, int(model.made.run.server.num_fitting)))


def _hits(facts: Facts, model: Modelled, readings: Readings) -> None:
    """Say what the hits of the prefix cache are worth: throughput with them, and without."""
    hits = readings.value(Signal.PREFIX_HITS)
    if not hits or model.found is None or model.loaded is None or model.made is None:
        return
    offers = tuple(replace(one, prefix_hit_fraction=0.0) for one in model.loaded.offers)
    try:
        without = predicted(model.found.site, replace(model.loaded, offers=offers)).result.output_tokens_per_s
    except InfcalcError:
        return
    now = model.made.result.output_tokens_per_s
    if now is not None and without is not None and without.value:
        more = now.value / without.value - 1
        facts["hits"] = f": {hits:.1%} of prompt tokens are worth {more:+.1%} of throughput here"


def _transfer(facts: Facts, model: Modelled, readings: Readings) -> None:
    """Say how long the KV of a prompt takes from pool to pool."""
    length = readings.value(Signal.INPUT_LENGTH)
    if length is None and model.made is not None:
        length = model.made.result.input_tokens
    if model.found is None or length is None:
        facts["transfer"] = "milliseconds on a network of 50 GB/s"
        return
    from infcalc.memory.kv import kv_components, sequence_bytes  # noqa: PLC0415 - only where there are pools

    deployment = model.found.deployment
    num_bytes = sequence_bytes(kv_components(deployment.model, model.found.site.form), round(length))
    took = format_seconds(num_bytes / _NETWORK_BYTES_PER_S)
    facts["transfer"] = f"{took} for {length:,.0f} tokens at 50 GB/s ({num_bytes / 1e9:.3g} GB)"


def _judged(facts: Facts, line: FigureLine, model: Modelled, readings: Readings) -> None:
    """Say what the figure is that the server is judged by, what bounds it, and how far it is from what is predicted."""
    comparison = model.comparison
    if comparison is None:
        return
    quantity = Quantity(line.quantity)
    facts["measured"] = f"{_NAMES.get(quantity, line.quantity)} {shown_value(line.quantity, line.measured)}"
    shares = comparison.first_token_shares if quantity in _FIRST_ONLY else comparison.token_shares
    bound = _BOUNDS.get(shares[0].cause, str(shares[0].cause)) if shares else comparison.bound_by
    if bound == "message" and readings.value(Signal.OFFLOADED):
        bound = "host link"
    facts["bound"] = bound
    roofline = line.roofline_fraction
    facts["roofline"] = "an unknown share" if roofline is None else f"{100 * roofline:.0f} %"
    over = readings.get(Signal.TOKEN_OVER_BAND)
    told = "" if over is None else over.shown
    if comparison.normal is not None:
        told += f"; {position_text(comparison.normal)}"
    if shares:
        told += "; a predicted token is " + ", ".join(
            f"{100 * one.share_fraction:.0f} % {_BOUNDS.get(one.cause, str(one.cause))}" for one in shares[:3]
        )
    facts["normal"] = facts["slower"] = told
    facts["suspects"] = _suspects(line, model)


def _suspects(line: FigureLine, model: Modelled) -> str:
    """Say what would explain a measurement that is slower than predicted."""
    default = "look at power and clocks (nvidia-smi -q -d CLOCK,PERFORMANCE), the host, and who else uses the server"
    run = None if model.made is None else model.made.run
    if run is None or model.made is None or line.quantity not in _JUDGED:
        return default
    from infcalc.api.losses import judged  # noqa: PLC0415 - only for what is slow

    try:
        (judgement,) = judged(run, model.made.result, (Measurement(quantity=line.quantity, value=line.measured),))
    except InfcalcError:
        return default
    losses = {"kernels below peak", "links", "engine overhead", "front end", "prefill of other requests"}
    suspects = [one for one in judgement.causes if one.cause not in losses]
    if not suspects:
        return default
    return "what would explain it: " + "; ".join(f"{one.cause} ({one.why})" for one in suspects[:_MOST_SUSPECTS])

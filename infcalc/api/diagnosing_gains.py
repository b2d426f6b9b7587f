"""What a remedy would gain: the same load on the changed deployment, by the path of ``estimate``, against it as it is.

Bands are those of ``what-if``: how published pairs of runs lie about the ratio that is predicted of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.api.changes import Candidate, can_serve
from infcalc.api.changes import Kind as CandidateKind
from infcalc.api.deployment import kv_format, resolve, single_kv_dtype
from infcalc.api.diagnosing_changes import AsItIs, Other, Pointless, changed
from infcalc.api.diagnosing_nouns import Gain
from infcalc.api.measured_figures import predicted
from infcalc.api.speed import site_of
from infcalc.api.what_if import THROUGHPUT_BAND, verdict_of
from infcalc.api.what_if_nouns import Factor
from infcalc.diagnosis.rule import Change
from infcalc.errors import InfcalcError
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.diagnosing_drafting import Drafted
    from infcalc.api.diagnosing_model import Modelled
    from infcalc.api.measured_figures import Predicted
    from infcalc.api.measured_load import Loaded
    from infcalc.api.offer import Figure
    from infcalc.api.speed import Site
    from infcalc.spec.kv import KvFormat

_KINDS: Final = {
    Change.KV_FP8: CandidateKind.KV,
    Change.MORE_MEMORY: CandidateKind.FRACTION,
    Change.WEIGHTS_FP8: CandidateKind.WEIGHTS,
    Change.WEIGHTS_INT4: CandidateKind.WEIGHTS,
    Change.WEIGHTS_16: CandidateKind.WEIGHTS,
}


NOT_PRICED: Final = "not priced"
"""How a gain that nobody can tell begins to say why; a change that is of no use says that instead."""
_BEYOND_FLOOR: Final = 1.02
"""A floor that changes less than this does not bind."""


class Pricer:
    """Prices changes of one case; each is made once. ``eager``: it was seen to run without graphs."""

    def __init__(self, model: Modelled, drafted: Drafted | None, *, eager: bool) -> None:
        self._model, self._drafted, self._eager = model, drafted, eager
        self._made: dict[Change, Gain | str] = {}

    def gain(self, change: Change) -> Gain | str:
        """Return what a change would gain, or in words why that is not priced."""
        found = self._made.get(change)
        if found is None:
            found = self._made[change] = self._priced(change)
        return found

    def _priced(self, change: Change) -> Gain | str:
        model = self._model
        if model.found is None:
            return f"{NOT_PRICED} without a deployment (--model, --gpu)"
        if change is Change.NO_DRAFTING:
            return self._without_drafting()
        if model.loaded is None or model.made is None or model.made.run is None:
            return f"{NOT_PRICED} without a load that is predicted to fit"
        try:
            return _weighed(change, *self._now(model.found.site, model.loaded, model.made))
        except Pointless as reason:
            return str(reason)
        except InfcalcError as problem:
            return f"cannot be: {problem.message}"

    def _now(self, site: Site, loaded: Loaded, made: Predicted) -> tuple[AsItIs, Predicted]:
        """Return the case as it is, and its prediction: without graphs, where it ran so."""
        if self._eager and not site.ask.enforce_eager:
            ask = replace(site.ask, enforce_eager=True)
            (deployment,) = resolve(ask, site.catalog)
            site = site_of(ask, deployment, site.catalog)
            made = predicted(site, loaded)
        if made.run is None:
            raise Pointless("not priced: it is not predicted to fit")
        return AsItIs(site=site, loaded=loaded, run=made.run, eager=self._eager), made

    def _without_drafting(self) -> Gain | str:
        one = self._drafted
        if one is None:
            return "not priced: what drafting gains here is not known"
        factor = Factor(value=1 / one.speedup, low=1 / one.high, high=1 / one.low)
        number = 1 if self._model.found is None else self._model.found.deployment.parallelism.num_gpus
        return _gain_of(
            factor,
            throughput=factor.value,
            tpot=one.speedup,
            ttft=None,
            num_gpus_before=number,
            num_gpus=number,
            why=f"drafting is {one.speedup:.2f}x {one.how}",
        )


def _weighed(change: Change, now: AsItIs, before: Predicted) -> Gain | str:
    """Return the gain of a change.

    Raises:
        Pointless: there is nothing to change.
        InfcalcError: it cannot be deployed so.

    """
    other = changed(change, now)
    (deployment,) = resolve(other.ask, now.site.catalog)
    form, _, _ = kv_format(deployment, single_kv_dtype(other.ask))
    refused = _refused(change, other.ask, deployment, form)
    if refused:
        return refused
    after = predicted(site_of(other.ask, deployment, now.site.catalog), other.loaded)
    if after.run is None:
        return f"does not fit: {format_bytes(after.result.missing_bytes)} per GPU are missing"
    gain = _gain(before, after, other)
    if change is Change.GRAPHS and not isinstance(gain, str) and gain.gain_factor < _BEYOND_FLOOR:
        return _only_a_floor(now, before)
    return gain


def _only_a_floor(now: AsItIs, before: Predicted) -> str:
    """Return why graphs are not priced where launches fit into a step: all that is known of them is the least time."""
    ranks = now.site.deployment.parallelism
    layers = sum(run.num_layers for run in now.site.deployment.model.layers)
    floor_s = now.run.machine.pace.value.eager_floor_s(num_layers=layers, num_gpus=max(ranks.tp, ranks.ep))
    tpot = before.result.tpot_s
    token = "" if tpot is None else f", and a token takes {format_seconds(tpot.value)} anyway"
    return (
        f"{NOT_PRICED}: of a run without graphs only the least time of its launches is known, "
        f"{format_seconds(floor_s)} in a step{token}; a benchmark with and without tells"
    )


def _refused(change: Change, ask: Ask, deployment: Deployment, form: KvFormat) -> str:
    kind = _KINDS.get(change)
    if kind is None:
        return ""
    if can_serve(Candidate(kind=kind, value="", text="", ask=ask), deployment, form):
        return ""
    return f"{deployment.rules.engine} {deployment.rules.version} does not do it on {deployment.gpu.name}"


def _gain(before: Predicted, after: Predicted, other: Other) -> Gain | str:
    rate, then = before.result.output_tokens_per_s, after.result.output_tokens_per_s
    if rate is None or then is None or not rate.value:
        return f"{NOT_PRICED}: nothing is answered under this load"
    throughput = other.num_servers * then.value / rate.value
    whole = _ratio(after.result.e2e_s, before.result.e2e_s)
    waits = before.run is None or not before.run.at_rate
    # Where requests come whatever is answered, a server gains by answering each sooner.
    value = throughput if waits or whole is None else 1 / whole
    factor = Factor(value=value, low=value / THROUGHPUT_BAND, high=value * THROUGHPUT_BAND)
    return _gain_of(
        factor,
        throughput=throughput,
        tpot=_ratio(after.result.tpot_s, before.result.tpot_s),
        ttft=_ratio(after.result.ttft_s, before.result.ttft_s),
        num_gpus_before=before.result.num_gpus,
        num_gpus=other.num_servers * after.result.num_gpus,
        why="; ".join(text for text in (other.why, _told(before, after)) if text),
    )


def _gain_of(
    factor: Factor,
    *,
    throughput: float,
    tpot: float | None,
    ttft: float | None,
    num_gpus_before: int,
    num_gpus: int,
    why: str,
) -> Gain:
    return Gain(
        gain_factor=factor.value,
        gain_factor_low=factor.low,
        gain_factor_high=factor.high,
        verdict=verdict_of(factor),
        throughput_factor=throughput,
        tpot_factor=tpot,
        ttft_factor=ttft,
        num_gpus_before=num_gpus_before,
        num_gpus=num_gpus,
        why=why,
    )


def _ratio(one: Figure | None, other: Figure | None) -> float | None:
    return one.value / other.value if one is not None and other is not None and other.value else None


def _told(before: Predicted, after: Predicted) -> str:
    parts = []
    for name, key in (("first token", "ttft_s"), ("token", "tpot_s")):
        one, other = getattr(before.result, key), getattr(after.result, key)
        if one is not None and other is not None:
            parts.append(f"{name} {format_seconds(one.value)} -> {format_seconds(other.value)}")
    return ", ".join(parts)

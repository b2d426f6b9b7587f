"""What a prediction says of each signal: how far off the measurement is, what bounds it, who finds room."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from infcalc.api.deployment import resolve
from infcalc.api.judging import Verdict
from infcalc.api.measured_causes import Loss
from infcalc.api.measured_comparing import shown_value
from infcalc.api.measured_figures import predicted
from infcalc.api.speed import front_end_s, site_of
from infcalc.diagnosis.signals import Reading, Signal
from infcalc.errors import InfcalcError
from infcalc.evidence.nouns import MEAN, MEDIAN, Quantity
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infcalc.api.diagnosing_cases import Case
    from infcalc.api.diagnosing_drafting import Drafted
    from infcalc.api.diagnosing_model import Modelled
    from infcalc.api.measured_figures import Predicted
    from infcalc.api.measured_nouns import FigureLine
    from infcalc.api.speed import Run
    from infcalc.diagnosis.signals import Cite
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.parallelism import Parallelism

_ORDER: Final = (
    Quantity.TPOT,
    Quantity.PER_USER,
    Quantity.ITL,
    Quantity.OUTPUT_PER_S,
    Quantity.INPUT_PER_S,
    Quantity.TOTAL_PER_S,
    Quantity.E2E,
    Quantity.PREFILL,
)
"""By which figure a server is called slow: what a token takes first, of batches and single tests their rate."""
_PACED: Final = frozenset({Quantity.OUTPUT_PER_S, Quantity.INPUT_PER_S, Quantity.TOTAL_PER_S, Quantity.REQUESTS_PER_S})
_SLIP: Final = 1.02
"""What clocks and rounding make of a figure at the limit itself; as :mod:`infcalc.api.judging` has it."""
_SHARES: Final = {
    Loss.BANDWIDTH: Signal.BANDWIDTH_SHARE,
    Loss.COMPUTE: Signal.COMPUTE_SHARE,
    Loss.OVERHEAD: Signal.OVERHEAD_SHARE,
    Loss.COMMUNICATION: Signal.COMMUNICATION_SHARE,
    Loss.INTERFERENCE: Signal.INTERFERENCE_SHARE,
}
_WEIGHT_ONLY: Final = frozenset({"awq", "gptq", "int4"})
"""Formats whose weights are widened to 16 bit before they compute."""
_GOOD_USE: Final = 0.9
"""Of the cache; below it there is room. Source: SGLang, docs/advanced_features/hyperparameter_tuning.md."""
_UNDER_LOAD: Final = 0.5
"""Set by hand: with fewer requests under way the metrics were saved before the load or after it."""
_THOUSAND: Final = 1000.0
_NEAR: Final = 2.0
_FAR: Final = 100.0
"""Set by hand: no server is a hundred times off by itself, and a unit leaves a figure within twice of its band."""
_CAPTURED: Final = (512, 1024)
"""Largest batch that vLLM captures by default, and on SM 10.x. Source: vLLM 0.33 vllm/config/vllm.py."""
_WIDE_CAPTURE: Final = ("GB100", "Blackwell Ultra")
_NVLINK_DOMAIN: Final = 8
"""GPUs of one machine, where no link between them is known."""


class Sight:
    """A case in the light of its prediction."""

    def __init__(
        self, case: Case, model: Modelled, drafted: Drafted | None, measured: Mapping[Signal, Reading]
    ) -> None:
        self._case, self._model, self._drafted, self._measured = case, model, drafted, measured
        self._unit = ""

    def readings(self) -> Iterator[Reading]:
        """Return what the prediction says, of those signals that it says something of."""
        yield from self._impossible()
        yield from self._headline()
        yield from self._first()
        yield from self._deployed()
        yield from self._drafting()
        if self._model.comparison is not None:
            yield from self._bounds({one.cause: one.share_fraction for one in self._model.comparison.token_shares})
        made = self._model.made
        if made is not None and made.run is not None:
            if self._model.comparison is None:
                yield from self._bounds_of(made)
            yield from self._loaded(made, made.run)

    # Beside the prediction

    def line(self) -> FigureLine | None:
        """Return the figure that the server is judged by; None where none is predicted."""
        comparison, made = self._model.comparison, self._model.made
        if comparison is None:
            return None
        paced = made is not None and made.run is not None and made.run.at_rate
        lines = {(line.quantity, line.statistic): line for line in comparison.lines if line.predicted}
        if self._case.run is None and self._case.metrics is None:
            # Interval lines: the number of requests that most of them are of.
            return max(
                lines.values(),
                key=lambda line: int(line.statistic.rpartition(" ")[2]) if line.verdict is not None else 0,
                default=None,
            )
        for quantity in _ORDER:
            for statistic in (MEAN, MEDIAN):
                found = lines.get((quantity, statistic))
                if found is not None and not (paced and quantity in _PACED):
                    return found
        return None

    def cites(self, line: FigureLine) -> tuple[Cite, ...]:
        """Return where a figure stands."""
        if self._case.run is not None:
            return self._case.cites_of_run(line.at)
        if self._case.metrics is not None:
            return self._case.cites_of_metrics(line.at)
        source = self._case.intervals_source
        if source is None:
            return ()
        return (source.at(int(line.at.removeprefix("line "))),)

    def _rounds(self) -> float:
        reading = self._measured.get(Signal.TOKENS_PER_ROUND)
        return max(1.0, reading.value) if reading is not None else 1.0

    def impossible(self) -> list[FigureLine]:
        """Return the figures beyond what physics allows; of drafting, beyond what its rounds could bring as well."""
        comparison = self._model.comparison
        if comparison is None:
            return []
        found = []
        for line in comparison.lines:
            if line.verdict is not Verdict.IMPOSSIBLE:
                continue
            first = line.quantity in {Quantity.TTFT, Quantity.PREFILL}
            if first or line.roofline_fraction is None or line.roofline_fraction / self._rounds() > _SLIP:
                found.append(line)
        return found

    def _impossible(self) -> Iterator[Reading]:
        if self._model.comparison is None:
            return
        found = self.impossible()
        shown = "; ".join(dict.fromkeys(line.attributed_to for line in found)) or "no figure is beyond physics"
        cites = tuple(dict.fromkeys(cite for line in found for cite in self.cites(line)))
        unsaid = bool(found) and self._model.found is not None and self._model.found.is_alone
        if unsaid:
            shown += "; no number of GPUs is stated, so one was assumed: --tp or --gpus says what it was"
        yield Reading(signal=Signal.IMPOSSIBLE, value=float(len(found)), shown=shown, cites=cites, modelled=unsaid)

    def _headline(self) -> Iterator[Reading]:
        line = self.line()
        if line is None or not line.predicted or not line.measured:
            return
        rate = line.quantity.endswith("_per_s") or line.quantity == Quantity.PER_USER
        # What drafting gains is in the measurement, and not in the prediction.
        faster = surely = 1.0
        if self._rounds() > 1:
            if self._drafted is None:
                return
            faster = self._drafted.speedup
            surely = faster if self._drafted.is_stated else min(1.0, faster)
        low, high = line.predicted_low or line.predicted, line.predicted_high or line.predicted
        low, high = (low * surely, high * faster) if rate else (low / faster, high / surely)
        over = low / line.measured if rate else line.measured / high
        under = line.measured / high if rate else low / line.measured
        shown = (
            f"{shown_value(line.quantity, line.measured)} measured, {shown_value(line.quantity, low)} to "
            f"{shown_value(line.quantity, high)} predicted"
        )
        cites = self.cites(line)
        self._unit = _thousandfold(line.measured, low, high, shown)
        told = self._unit or "no figure is a thousandfold off"
        yield Reading(signal=Signal.THOUSANDFOLD, value=float(bool(self._unit)), shown=told, cites=cites, modelled=True)
        yield Reading(signal=Signal.TOKEN_OVER_BAND, value=over, shown=shown, cites=cites, modelled=True)
        yield Reading(signal=Signal.BAND_OVER_TOKEN, value=under, shown=shown, cites=cites, modelled=True)
        if line.slower_fraction is None or faster > 1:
            yield Reading(signal=Signal.UNRANKED_OVER_BAND, value=over, shown=shown, cites=cites, modelled=True)
        else:
            share = line.slower_fraction
            told = f"{share:.0%} of published runs of its class are slower beside their own prediction"
            yield Reading(signal=Signal.SLOWER_PEERS, value=share, shown=told, cites=cites, modelled=True)
        if line.roofline_fraction is not None:
            share = line.roofline_fraction
            yield Reading(
                signal=Signal.ROOFLINE,
                value=share,
                shown=f"{share:.0%} of what physics allows",
                cites=self.cites(line),
                modelled=True,
            )

    def _first(self) -> Iterator[Reading]:
        comparison, made = self._model.comparison, self._model.made
        if comparison is None or made is None or made.run is None:
            return
        line = next((one for one in comparison.lines if (one.quantity, one.statistic) == (Quantity.TTFT, MEAN)), None)
        if line is None or not line.predicted:
            return
        high = line.predicted_high or line.predicted
        shown = f"first token after {format_seconds(line.measured)}, up to {format_seconds(high)} predicted"
        cites = self.cites(line)
        yield Reading(
            signal=Signal.FIRST_OVER_BAND, value=line.measured / high, shown=shown, cites=cites, modelled=True
        )
        step = made.result.prefill_step
        run = made.run
        if step is None:
            return
        chunk = max(1.0, min(run.asked.prompt_tokens, run.server.budget_tokens))
        own_s = step.time_s.value * run.asked.prompt_tokens / chunk + front_end_s(run)
        if self._unit:
            return
        shown = (
            f"{format_seconds(line.measured)} to the first token, {format_seconds(own_s)} of them for its own prompt"
        )
        excess = max(0.0, line.measured - own_s)
        outside, queue = self._outside_s(), self._queue_s()
        if outside:
            excess = max(0.0, excess - outside)
            shown += f", {format_seconds(outside)} outside the engine"
        if queue is not None and queue < excess:
            excess = queue
            shown += f", {format_seconds(queue)} in the queue as measured"
        if line.measured <= high and _all_run(run):
            excess = 0.0
            shown += ", and as long as predicted where all clients have a place: prompts share steps"
        yield Reading(signal=Signal.EXCESS_FIRST, value=excess, shown=shown, cites=cites, modelled=True)
        share = excess / line.measured
        yield Reading(signal=Signal.EXCESS_FIRST_SHARE, value=share, shown=shown, cites=cites, modelled=True)

    def _outside_s(self) -> float:
        """Return the seconds of a first token that were measured to pass before the engine, or behind it."""
        signal = Signal.FRONT_END if self._case.run is None else Signal.CLIENT_GAP
        reading = self._measured.get(signal)
        return 0.0 if reading is None else reading.value

    def _queue_s(self) -> float | None:
        """Return the measured wait of the very requests whose first token is looked at; None where nobody tells."""
        same = self._case.run is None or Signal.CLIENT_GAP in self._measured
        reading = self._measured.get(Signal.QUEUE) if same else None
        return None if reading is None else reading.value

    # What bounds it

    def _bounds_of(self, made: Predicted) -> Iterator[Reading]:
        from infcalc.api.measured_causes import shares_of, token_causes  # noqa: PLC0415 - only here

        if made.run is not None:
            shares = shares_of(token_causes(made.run, made.result))
            yield from self._bounds({one.cause: one.share_fraction for one in shares})

    def _bounds(self, shares: Mapping[Loss, float]) -> Iterator[Reading]:
        if not shares:
            return
        for cause, signal in _SHARES.items():
            share = shares.get(cause, 0.0)
            yield Reading(
                signal=signal, value=share, shown=f"{share:.0%} of a predicted token are {cause}", modelled=True
            )

    # Places

    def _loaded(self, made: Predicted, run: Run) -> Iterator[Reading]:
        result = made.result
        share = result.prefill_time_fraction
        shown = f"{share:.0%} of the GPU's time is predicted to go into prompts"
        yield Reading(signal=Signal.PREFILL_SHARE, value=share, shown=shown, modelled=True)
        running = self._measured.get(Signal.RUNNING)
        batch = result.batch if running is None else running.value
        told = f"{batch:,.0f} sequences in a step"
        cites = () if running is None else running.cites
        yield Reading(signal=Signal.BATCH, value=batch, shown=told, cites=cites, modelled=running is None)
        yield from self._demand(run)
        yield from self._weights(made)

    def under_way(self, run: Run) -> tuple[float, str] | None:
        """Return how many requests are under way at once, and who says so; None where nobody does."""
        offer = run.load.offer
        if offer.concurrency is not None:
            return float(offer.concurrency), f"{offer.concurrency:,} requests are kept under way"
        if offer.batch is not None:
            return float(offer.batch), f"{offer.batch:,} requests start together"
        if offer.requests_per_s is None and offer.num_requests is not None:
            return float(offer.num_requests), f"{offer.num_requests:,} requests come at once"
        return self._counted(run)

    def _counted(self, run: Run) -> tuple[float, str] | None:
        """Return how many requests were under way by what was measured: rate x time of a request (Little 1961)."""
        evidence = self._case.run
        rate = None if evidence is None else evidence.figure(Quantity.REQUESTS_PER_S)
        if evidence is None or rate is None:
            return None
        whole, first, each = (evidence.figure(one) for one in (Quantity.E2E, Quantity.TTFT, Quantity.TPOT))
        if whole is not None:
            whole_s = whole.value
        elif first is not None and each is not None:
            whole_s = first.value + max(0.0, run.asked.answer_tokens - 1) * each.value
        else:
            return None
        number = rate.value * whole_s
        return number, f"{number:,.0f} requests were under way (rate x time of a request)"

    def _demand(self, run: Run) -> Iterator[Reading]:
        demand = self.under_way(run)
        deployment, server = run.machine.deployment, run.server
        has_room = self._measured_room(demand)
        bound = server.num_fitting < server.num_places + 1 and has_room is None
        shown = f"room for {server.num_fitting:,.0f} requests of these lengths is predicted"
        told = shown if has_room is None else has_room.shown
        yield Reading(signal=Signal.ROOM_BOUND, value=float(bound), shown=told, modelled=True)
        seats = deployment.max_num_seqs * deployment.parallelism.dp
        running = self._measured.get(Signal.RUNNING)
        if running is not None:
            told = f"{running.value:,.3g} requests run of at most {seats:,}"
            yield Reading(
                signal=Signal.SEATS_TAKEN, value=running.value / seats, shown=told, cites=running.cites, modelled=True
            )
        if demand is None:
            return
        number, text = demand
        room = max(server.num_fitting, 1.0)
        cites = self._cites_of_demand()
        yield Reading(
            signal=Signal.DEMAND_OVER_ROOM, value=number / room, shown=f"{text}; {shown}", cites=cites, modelled=True
        )
        told = f"{text}, and {seats:,} may run"
        yield Reading(signal=Signal.DEMAND_OVER_SEATS, value=number / seats, shown=told, cites=cites, modelled=True)

    def _measured_room(self, demand: tuple[float, str] | None) -> Reading | None:
        """Return the reading of the cache that says it has room while the load is on; None where none does."""
        usage, running = (self._measured.get(one) for one in (Signal.KV_USAGE, Signal.RUNNING))
        if usage is None or running is None or demand is None or usage.value >= _GOOD_USE:
            return None
        waiting = self._measured.get(Signal.WAITING)
        under_way = running.value + (0.0 if waiting is None else waiting.value)
        return usage if under_way >= _UNDER_LOAD * demand[0] else None

    def _cites_of_demand(self) -> tuple[Cite, ...]:
        for key in ("max_concurrency", "num_prompts"):
            found = [one for one in self._case.cites_of_run(key) if one.line is not None]
            if found:
                return tuple(found)
        running = self._measured.get(Signal.RUNNING)
        return () if running is None else running.cites

    def _weights(self, made: Predicted) -> Iterator[Reading]:
        found = self._model.found
        loaded = self._model.loaded
        if found is None or loaded is None:
            return
        narrow = found.deployment.weights in _WEIGHT_ONLY
        shown = f"weights in {found.deployment.weights}{', arithmetic in 16 bit' if narrow else ''}"
        yield Reading(signal=Signal.WEIGHT_ONLY, value=float(narrow), shown=shown)
        if not narrow:
            return
        try:
            ask = replace(found.site.ask, weights="bf16")
            (wide,) = resolve(ask, found.site.catalog)
            other = predicted(site_of(ask, wide, found.site.catalog), loaded)
        except InfcalcError:
            return
        now, then = made.result.output_tokens_per_s, other.result.output_tokens_per_s
        if now is None or then is None or not now.value:
            return
        shown = f"{then.value:,.0f} tokens/s predicted in 16 bit, {now.value:,.0f} as it is"
        yield Reading(signal=Signal.WEIGHT_ONLY_LOSS, value=then.value / now.value, shown=shown, modelled=True)

    # The deployment

    def _deployed(self) -> Iterator[Reading]:
        found = self._model.found
        if found is None:
            return
        deployment, ask = found.deployment, found.site.ask
        if ask.enforce_eager:
            yield Reading(signal=Signal.EAGER, value=1.0, shown="the engine runs without CUDA graphs (--enforce-eager)")
        else:
            yield from self._captured()
        offloaded = deployment.cpu_offload_bytes
        shown = f"{format_bytes(offloaded)} of each GPU's weights stay in host memory" if offloaded else "none are"
        yield Reading(signal=Signal.OFFLOADED, value=float(offloaded), shown=shown)
        yield from _links(deployment.gpu, deployment.parallelism)
        if ask.max_num_batched_tokens is not None:
            try:
                (default,) = resolve(replace(ask, max_num_batched_tokens=None), found.site.catalog)
            except InfcalcError:
                return
            ratio = deployment.max_num_batched_tokens / default.max_num_batched_tokens
            shown = (
                f"{deployment.max_num_batched_tokens:,} tokens per step, {default.max_num_batched_tokens:,} by default"
            )
            yield Reading(signal=Signal.BUDGET_OVER_DEFAULT, value=ratio, shown=shown)

    def _captured(self) -> Iterator[Reading]:
        found, running = self._model.found, self._measured.get(Signal.RUNNING)
        if found is None or running is None or found.deployment.rules.engine != "vllm":
            return
        deployment = found.deployment
        wide = any(word in deployment.gpu.architecture for word in _WIDE_CAPTURE)
        most = min(2 * deployment.max_num_seqs, _CAPTURED[wide])
        each = running.value / deployment.parallelism.dp
        shown = f"{each:,.0f} requests run, and graphs are captured up to {most:,}"
        yield Reading(
            signal=Signal.RUNNING_OVER_CAPTURED, value=each / most, shown=shown, cites=running.cites, modelled=True
        )

    def _drafting(self) -> Iterator[Reading]:
        one = self._drafted
        if one is None:
            return
        shown = f"{one.speedup:.2f}x predicted ({one.low:.2f} to {one.high:.2f}) {one.how}"
        yield Reading(signal=Signal.DRAFTING_SPEEDUP, value=one.speedup, shown=shown, modelled=True)


def _all_run(run: Run) -> bool:
    """Return whether clients that wait for their answers all find a place at once."""
    clients, server = run.load.offer.concurrency, run.server
    deployment = run.machine.deployment
    return clients is not None and clients <= min(
        server.num_fitting, deployment.max_num_seqs * deployment.parallelism.dp
    )


def _thousandfold(measured: float, low: float, high: float, shown: str) -> str:
    """Return in words that a figure would be near its prediction in a unit a thousand times as large, or as small."""
    for factor, word in ((_THOUSAND, "a thousand times"), (1 / _THOUSAND, "a thousandth of")):
        if low / _NEAR <= measured / factor <= high * _NEAR and not low / _FAR <= measured <= high * _FAR:
            return f"{shown}: it is {word} what was to be expected"
    return ""


def _links(gpu: Gpu, parallelism: Parallelism) -> Iterator[Reading]:
    link, tp = gpu.scale_up, parallelism.tp
    domain = _NVLINK_DOMAIN if link is None or link.max_domain <= 1 else link.max_domain
    bare = tp > 1 and (link is None or link.optional)
    across = tp > max(domain, 1)
    name = "no scale-up link is known" if link is None else f"{link.name} joins {link.max_domain}"
    shown = f"TP {tp} on {gpu.name}, of which {name}"
    yield Reading(signal=Signal.TP_WITHOUT_LINK, value=float(bare and not across), shown=shown)
    yield Reading(signal=Signal.TP_ACROSS_MACHINES, value=float(across), shown=shown)

"""Predictions of what a benchmark measures: quantities and statistics of a run, through the path of ``estimate``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.costing import Terms
from infcalc.api.figures import scaled
from infcalc.api.measured_causes import prompt_step_fraction
from infcalc.api.offer import Figure
from infcalc.api.offering import check_offer, load_for
from infcalc.api.speed import answered, front_end_s
from infcalc.evidence.nouns import MEAN, MEDIAN, Quantity
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.measured_load import Loaded
    from infcalc.api.offering import Load
    from infcalc.api.simulation_nouns import RunResult
    from infcalc.api.simulation_runs import Progress
    from infcalc.api.speed import Run, Site, SpeedResult

_MEDIANS = {Quantity.TTFT: "ttft", Quantity.TPOT: "tpot", Quantity.E2E: "e2e"}
_RARE = 0.5
_SIMULATED = {
    Quantity.TTFT: "ttft_s",
    Quantity.TPOT: "tpot_s",
    Quantity.ITL: "itl_s",
    Quantity.E2E: "e2e_s",
    Quantity.QUEUE: "queue_s",
}
_RATES = {
    Quantity.REQUESTS_PER_S: "requests_per_s",
    Quantity.OUTPUT_PER_S: "output_tokens_per_s",
    Quantity.TOTAL_PER_S: "total_tokens_per_s",
    Quantity.PER_USER: "output_tokens_per_s_per_user",
}
_OF_RESULT = {
    **_RATES,
    Quantity.TTFT: "ttft_s",
    Quantity.E2E: "e2e_s",
    Quantity.TPOT: "tpot_s",
    Quantity.ITL: "tpot_s",
    Quantity.TPOT_INCLUSIVE: "tpot_inclusive_s",
    Quantity.QUEUE: "queue_s",
}
"""What an estimate has by itself."""


@frozen
class Predicted:
    """A load on a deployment as ``estimate`` has it, and as ``simulate`` does where that was asked for.

    ``run`` is None where it does not fit.
    """

    loaded: Loaded
    result: SpeedResult
    run: Run | None
    simulated: RunResult | None = None

    def figure(self, quantity: Quantity, statistic: str) -> Figure | None:
        """Return the prediction of a figure; None where there is none."""
        told = self._simulated(quantity, statistic)
        if told is not None:
            return told
        return None if self.run is None else self._estimated(self.run, quantity, statistic)

    def _simulated(self, quantity: Quantity, statistic: str) -> Figure | None:
        run = self.simulated
        if run is None:
            return None
        basis = self.run.machine.bands.basis if self.run is not None else None
        value: float | None = None
        if quantity in _SIMULATED:
            summary = getattr(run, _SIMULATED[quantity])
            name = "p50" if statistic == MEDIAN else statistic
            value = None if summary is None else getattr(summary, name, None)
        elif statistic == MEAN and quantity in _RATES:
            value = getattr(run, _RATES[quantity])
        elif statistic == MEAN and quantity is Quantity.INPUT_PER_S and self.run is not None:
            value = run.requests_per_s * self.run.load.prompt_tokens
        if value is None or basis is None:
            return None
        # A band is known of means and medians, from estimates.
        like = self._estimated(self.run, quantity, statistic) if self.run is not None else None
        low, high = (1.0, 1.0) if like is None or not like.value else (like.low / like.value, like.high / like.value)
        return Figure(value=value, low=value * low, high=value * high, basis=basis)

    def _estimated(self, run: Run, quantity: Quantity, statistic: str) -> Figure | None:
        result = self.result
        if statistic == MEDIAN:
            return self._median(run, quantity)
        if statistic != MEAN:
            return None
        if quantity in _OF_RESULT:
            found: Figure | None = getattr(result, _OF_RESULT[quantity])
            return self._without_front_end(run, found) if quantity in {Quantity.TTFT, Quantity.E2E} else found
        return self._composed(run, quantity)

    def _composed(self, run: Run, quantity: Quantity) -> Figure | None:
        """Return a figure that an estimate has the parts of."""
        match quantity:
            case Quantity.PREFILL:
                return self._prefill(run)
            case Quantity.DECODE:
                each = self.result.tpot_s
                return None if each is None else scaled(each, run.asked.answer_tokens - 1)
            case Quantity.INPUT_PER_S:
                return self._input_rate(run)
            case Quantity.CONCURRENT:
                return self._under_way()
            case _:
                return None

    def _median(self, run: Run, quantity: Quantity) -> Figure | None:
        if quantity is Quantity.ITL:
            step = self.result.step
            # Most gaps are steps without a prompt, where few steps hold one.
            return None if step is None or prompt_step_fraction(run) >= _RARE else step.time_s
        name = _MEDIANS.get(quantity)
        mean = None if name is None else self._estimated(run, quantity, MEAN)
        if name is None or mean is None:
            return None
        whole, middle = getattr(run.speed, f"{name}_s"), getattr(run.speed, f"{name}_median_s")
        return scaled(mean, middle / whole) if whole else mean

    def _without_front_end(self, run: Run, figure: Figure | None) -> Figure | None:
        if figure is None or self.loaded.front_end:
            return figure
        less = front_end_s(run)
        return Figure(
            value=max(figure.value - less, 0.0),
            low=max(figure.low - less, 0.0),
            high=max(figure.high - less, 0.0),
            basis=figure.basis,
        )

    def _prefill(self, run: Run) -> Figure | None:
        """Return the time from a request's first step to its first token."""
        first = self.result.ttft_s
        if first is None:
            return None
        less = front_end_s(run) + run.speed.queue_s
        return scaled(first, max(0.0, first.value - less) / first.value) if first.value else first

    def _input_rate(self, run: Run) -> Figure | None:
        if self.loaded.single:
            first = self.result.ttft_s
            if first is None:
                return None
            tokens = run.asked.prompt_tokens
            return Figure(
                value=tokens / first.value, low=tokens / first.high, high=tokens / first.low, basis=first.basis
            )
        rate = self.result.requests_per_s
        return None if rate is None else scaled(rate, run.load.prompt_tokens)

    def _under_way(self) -> Figure | None:
        """Return the requests under way: rate times time (Little 1961)."""
        rate, whole = self.result.requests_per_s, self.result.e2e_s
        if rate is None or whole is None:
            return None
        value = rate.value * whole.value
        return Figure(value=value, low=value, high=value, basis=rate.basis)


def predicted(site: Site, loaded: Loaded) -> Predicted:
    """Return what is predicted of a load: of a rate with a cap on requests under way, what the slower of both gives.

    Raises:
        UsageError: no load can be so, or its requests are longer than the server admits.

    """
    return slowest(site, loaded, lambda asked: answered(site, asked))


def slowest(site: Site, loaded: Loaded, answer: Callable[[Load], tuple[SpeedResult, Run | None]]) -> Predicted:
    """Return what ``answer`` predicts of a load, as :func:`predicted`.

    Raises:
        UsageError: no load can be so, or its requests are longer than the server admits.

    """
    tried = []
    for offer in loaded.offers:
        check_offer(offer)
        result, run = answer(load_for(site.deployment, offer, ()))
        tried.append(Predicted(loaded=loaded, result=result, run=run))
    return min(tried, key=lambda one: 0.0 if one.result.requests_per_s is None else one.result.requests_per_s.value)


def with_simulation(site: Site, found: Predicted, seed: int | None, progress: Progress | None) -> Predicted:
    """Return a prediction with the same load simulated, request by request.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.simulating.simulate`.

    """
    from infcalc.api.simulation_ask import SimulationAsk, policies_for, with_defaults  # noqa: PLC0415 - numpy
    from infcalc.api.simulation_site import place_of  # noqa: PLC0415
    from infcalc.api.workloads import traced_of  # noqa: PLC0415

    if found.run is None or found.loaded.single:
        return found
    asked = SimulationAsk(load=replace(found.loaded.workload, seed=seed))
    traced = traced_of(with_defaults(asked.load))
    place = place_of(site, asked, Terms(), traced.trace)
    if place.machinery is None:
        return found
    policy = policies_for(asked, site.deployment.rules.engine)[0]
    return replace(found, simulated=place.run_whole(policy, traced.trace, progress).result)

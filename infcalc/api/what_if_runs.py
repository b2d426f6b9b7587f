"""The runs of ``what-if``, each made once; what its requests were on average, and what a step of them moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.deployment import resolve
from infcalc.api.simulating import simulate
from infcalc.api.speed import site_of
from infcalc.frozen import frozen
from infcalc.lowering.ops import Decode, StepShape, operations
from infcalc.lowering.tensors import inventory

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.costing import Terms
    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.speed import Site
    from infcalc.api.what_if_changes import Side
    from infcalc.catalog.lookup import Catalog


@frozen
class Seen:
    """What the answered requests of a run were on average, and how many of them decode at once in a lane."""

    prompt_tokens: float
    answer_tokens: float
    num_decodes: float

    @property
    def context_tokens(self) -> float:
        """What a step reads of each: the prompt, and half of the answer."""
        return max(1.0, self.prompt_tokens + self.answer_tokens / 2)


@frozen
class Moved:
    """What a decode step reads on one GPU of the busiest stage."""

    weight_bytes: float
    kv_bytes: float


class Runs:
    """Simulations and deployments of sides, each made once."""

    def __init__(self, catalog: Catalog, terms: Terms) -> None:
        self.catalog, self._terms = catalog, terms
        self._made: dict[Side, Answer[SimulationResult]] = {}
        self._sites: dict[object, Site] = {}

    def answer(self, side: Side) -> Answer[SimulationResult]:
        """Return the simulation of a side.

        Raises:
            KeyboardInterrupt: Ctrl-C broke it off; a part of a run stands beside nothing.

        """
        found = self._made.get(side)
        if found is None:
            found = simulate(side.ask, side.asked, terms=self._terms)
            if found.result.partial or found.result.not_run:
                raise KeyboardInterrupt
            self._made[side] = found
        return found

    def site(self, side: Side) -> Site:
        """Return the deployment of a side."""
        found = self._sites.get(side.ask)
        if found is None:
            (deployment,) = resolve(side.ask, self.catalog)
            found = self._sites[side.ask] = site_of(side.ask, deployment, self.catalog)
        return found


def rates_of(off: SimulationResult, on: SimulationResult, *, waits: bool) -> tuple[float, float]:
    """Return tokens per second of both: where clients wait for answers those while they ask, else of the whole run.

    What comes after the last request is sent is a closed loop that runs empty: a server never sees that again. Where
    most of a run is that, there is no such stretch, and the whole is taken.
    """
    if not waits or off.loaded_output_tokens_per_s is None or on.loaded_output_tokens_per_s is None:
        return off.output_tokens_per_s, on.output_tokens_per_s
    return off.loaded_output_tokens_per_s, on.loaded_output_tokens_per_s


def seen(run: SimulationResult, *, waits: bool) -> Seen:
    """Return what the requests of a run were; requests in decode are tokens per second times the time of one (Little).

    Raises:
        AssertionError: it answered nobody.

    """
    if not run.completed:
        raise AssertionError("the run answered nobody")
    answers = run.output_tokens_per_s * run.duration_s / run.completed
    prompts = run.total_tokens_per_s * run.duration_s / run.completed - answers
    rate, _ = rates_of(run, run, waits=waits)
    each_s = 0.0 if run.tpot_s is None else run.tpot_s.mean
    return Seen(
        prompt_tokens=max(1.0, prompts), answer_tokens=answers, num_decodes=max(1.0, rate * each_s / run.num_lanes)
    )


def moved(site: Site, what: Seen) -> Moved:
    """Return what a step of such requests reads: weights once (of experts those that are touched), caches of all."""
    deployment = site.deployment
    decodes = Decode(context_tokens=round(what.context_tokens), num_sequences=max(1, round(what.num_decodes)))
    tensors = inventory(deployment.model, deployment.quantization)
    stages = [
        operations(
            deployment.model,
            StepShape(decodes=(decodes,)),
            parallelism=deployment.parallelism,
            kv=site.form,
            tensors=tensors,
            stage=stage,
        )
        for stage in (range(deployment.parallelism.pp) if deployment.parallelism.pp > 1 else (None,))
    ]
    read = [(sum(op.weight_bytes for op in ops), sum(op.kv_read_bytes for op in ops)) for ops in stages]
    weights, cache = max(read, key=sum)
    return Moved(weight_bytes=weights, kv_bytes=cache)

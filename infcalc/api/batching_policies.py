"""Static or continuous? The same requests under every scheduling policy, step by step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.batching_requests import BatchingAsk, Drawn, check_work, drawn_for, work_of
from infcalc.api.batching_runs import PolicyResult, Setting, runs_of
from infcalc.api.batching_words import doubts, explanations_of, notes_of
from infcalc.api.costing import Terms, price_warnings, rent_inputs, rent_of, settled, unused_prices
from infcalc.api.deployment import Ask, Deployment, load, merged_inputs, resolve
from infcalc.api.ledger import deployment_ledger
from infcalc.api.offer import Figure
from infcalc.api.replicas import Policy, Seating, policies_of, step_timer
from infcalc.api.sizing import check_model_len
from infcalc.api.speed import machine_of, site_of
from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import unit_step
from infcalc.spec.efficiency import Basis
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.costing import Rent
    from infcalc.api.speed import Site
    from infcalc.spec.explain import Explanation

_EXACT = Figure(value=1.0, low=1.0, high=1.0, basis=Basis.CALIBRATED)
"""The pace of steps that are counted, not timed."""
_DOES_NOT_FIT = 3
_HOUR_S = 3600


@frozen
class BatchingResult:
    """The same requests under each policy, on one lane of a deployment."""

    model: str
    gpu: str
    num_gpus: int
    num_lanes: int
    """Parts of the replica that take steps on their own (attention-DP ranks, pipeline stages); one is simulated."""
    engine: str
    """Whose step times these are: the same for every policy."""
    fits: bool
    missing_bytes: int
    num_requests: int
    num_slots: int
    prompt_tokens: int
    """Of all requests."""
    answer_tokens: int
    longest_answer_tokens: int
    cache_tokens: int
    unit_steps: bool
    """Every step counts as one second."""
    fastest: Policy | None = None
    """The highest throughput; of equals the lowest mean latency."""
    policies: tuple[PolicyResult, ...] = ()


def batching(
    ask: Ask | None = None,
    wanted: BatchingAsk | None = None,
    *,
    terms: Terms | None = None,
    explain: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Answer[BatchingResult]:
    """Return latency, throughput and use of the slots of the same requests under each policy.

    Without anything: 50 requests with Pareto answers, all there at the start, on 8 slots of the reference deployment.
    Every policy has the same slots, cache, tokens per step and step times, so that they differ in their rules alone.
    Exit code 3 where a deployment does not fit. ``progress`` is told the turns that are taken, of how many,
    in the runs of each deployment.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask, wanted, terms = ask or Ask(), wanted or BatchingAsk(), terms or Terms()
    policies = policies_of(wanted.policies)
    catalog = load(ask)
    terms = settled(terms, catalog)
    results: list[BatchingResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    for deployment in resolve(ask, catalog):
        check_model_len(deployment)
        drawn = drawn_for(ask, deployment, wanted)
        site, rent = site_of(ask, deployment, catalog), rent_of(deployment.gpu, terms)
        seating, missing = _seated(site, drawn)
        result = _described(deployment, drawn, seating, missing_bytes=missing, unit_steps=wanted.unit_steps)
        if result.fits:
            setting = _set(site, drawn, seating, rent, terms, unit_steps=wanted.unit_steps)
            num_runs = len(policies) * setting.num_runs
            check_work(drawn, num_runs)
            ran = runs_of(policies, setting, _advance(num_runs * work_of(drawn.requests), progress))
            fastest = max(ran, key=lambda one: (one.throughput_tokens_per_s, -(one.latency_mean_s or math.inf)))
            result = replace(result, policies=ran, fastest=fastest.policy)
            notes += notes_of(result, setting, drawn)
            talk += doubts(result)
            if explain:
                explanations += explanations_of(result, setting, drawn, rent=rent, terms=terms)
        results.append(result)
        notes += deployment.assumptions
        talk += [*drawn.warnings, *deployment.warnings]
        kv = Input(name="kv_dtype", value=site.form.name, origin=site.form_origin)
        priced = () if wanted.unit_steps else rent_inputs(rent, terms)
        if result.fits and not wanted.unit_steps:
            talk += price_warnings(deployment.gpu, rent, terms)
        inputs.append((*deployment.inputs, kv, *drawn.inputs, *priced))
    talk += unused_prices(terms, (result.gpu for result in results))
    return Answer(
        command="batching",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=0 if all(result.fits for result in results) else _DOES_NOT_FIT,
    )


def _advance(work: int, progress: Callable[[int, int], None] | None) -> Callable[[int], None]:
    """Return what adds up the turns of steps and tells them; preempted requests take more than were foreseen."""
    if progress is None:
        return lambda _: None
    done = 0

    def advance(num_turns: int) -> None:
        nonlocal done
        done += num_turns
        progress(min(done, work), work)

    return advance


def _seated(site: Site, drawn: Drawn) -> tuple[Seating, int]:
    """Return what schedulers work with, and the bytes that are missing for one mean request."""
    deployment, total = site.deployment, drawn.mean_total_tokens
    book = deployment_ledger(replace(deployment, max_model_len=total), site.form, context_tokens=total)
    # The engine counts its cache in sequences of the length that it was started with.
    own = deployment_ledger(deployment, site.form, context_tokens=total)
    seating = Seating(
        cache_tokens=own.kv_cache_tokens,
        block_tokens=own.block_tokens,
        max_num_seqs=drawn.num_slots,
        budget_tokens=deployment.max_num_batched_tokens,
        max_model_len=drawn.limit_tokens,
    )
    return seating, 0 if book.fits else book.missing_bytes


def _set(site: Site, drawn: Drawn, seating: Seating, rent: Rent | None, terms: Terms, *, unit_steps: bool) -> Setting:
    """Return what all policies have in common."""
    if unit_steps:
        return Setting(seating=seating, requests=drawn.requests, timer=unit_step, pace=_EXACT)
    machine = machine_of(site)
    parallelism = site.deployment.parallelism
    num_gpus = parallelism.num_gpus / (parallelism.dp * parallelism.pp)
    setting = Setting(
        seating=seating,
        requests=drawn.requests,
        timer=step_timer(machine),
        pace=machine.bands.figure("tpot_s", 1.0),
    )
    if rent is None:
        return setting
    return replace(
        setting,
        usd_per_s=rent.usd_per_hour * num_gpus / _HOUR_S / terms.utilization_fraction,
        usd_low_fraction=rent.usd_per_hour_low / rent.usd_per_hour,
        usd_high_fraction=rent.usd_per_hour_high / rent.usd_per_hour,
    )


def _described(
    deployment: Deployment, drawn: Drawn, seating: Seating, *, missing_bytes: int, unit_steps: bool
) -> BatchingResult:
    return BatchingResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        num_lanes=deployment.parallelism.dp * deployment.parallelism.pp,
        engine=deployment.rules.engine,
        fits=not missing_bytes,
        missing_bytes=missing_bytes,
        num_requests=len(drawn.requests),
        num_slots=drawn.num_slots,
        prompt_tokens=sum(request.prompt_tokens for request in drawn.requests),
        answer_tokens=sum(request.output_tokens for request in drawn.requests),
        longest_answer_tokens=max(request.output_tokens for request in drawn.requests),
        cache_tokens=seating.cache_tokens,
        unit_steps=unit_steps,
    )

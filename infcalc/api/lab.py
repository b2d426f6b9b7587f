"""Does it hold on this machine? The numpy engine on this very processor, against the roofline of its own kernels.

Each row times steps of the engine and predicts them with the machinery that prices GPUs: the ops of the model
(:mod:`infcalc.lowering.ops`) on the curves of the computer's kernels (:mod:`infcalc.roofline.clock`). The curves come
from kernels that were timed one by one, before and after the steps; no step is an input of its own prediction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.answer import Answer
from infcalc.api.deployment import Ask, load
from infcalc.api.lab_cases import CONTIGUOUS, NO_CACHE, PAGED, answers, counted, decode, shared_prompt
from infcalc.api.lab_machine import Computer, this_computer
from infcalc.api.lab_measure import (
    check_memory,
    checked_repeat,
    machine_result,
    measured,
    noise_warnings,
    pool_bytes,
    timings,
)
from infcalc.api.lab_models import chosen_model, llama, weight_bytes
from infcalc.api.lab_probes import probes
from infcalc.api.lab_report import LabResult, LabRow, MachineResult
from infcalc.api.lab_timing import LEAST_RUNS, Course
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.lowering.ops import ElementwiseIo, Extent
from infcalc.reference.arithmetic import BATCHED, EXACT
from infcalc.reference.transformer import Transformer
from infcalc.reference.weights import random_weights
from infcalc.roofline.clock import StepClock
from infcalc.roofline.curves import curves_of
from infcalc.spec.explain import Explanation, Input
from infcalc.spec.kv import KV_FORMATS
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.lab_cases import Case, Projection
    from infcalc.api.lab_timing import Instruments
    from infcalc.roofline.clock import StepPart
    from infcalc.spec.efficiency import GpuEfficiency
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model

CONTEXT_TOKENS, QUICK_CONTEXT_TOKENS = 256, 64
COUNT_TOKENS, QUICK_COUNT_TOKENS = 1000, 250
BATCHES = (1, 4)
MAX_CONTEXT_TOKENS = 8192
MAX_COUNT_TOKENS = 4096
MAX_BATCH = 64
_ANSWER_TOKENS = 12
_NUM_POINTS = 20
_COUNTING_BUDGETS = 3
"""Counting may take as long as three kinds of steps: it is done once."""
_COUNTED = (NO_CACHE, CONTIGUOUS)
_COUNTING = llama("lab-counting", hidden_size=64, num_layers=1, vocab_size=64)
_AGREEING = llama("lab-agreeing", hidden_size=128, num_layers=2, vocab_size=512)


@frozen
class LabAsk:
    """What the laboratory is asked: which model, how long, how often. None takes the default.

    ``gpu`` names a catalog entry to predict from, in place of kernels that are timed anew.
    """

    size: str | None = None
    hidden_size: int | None = None
    num_layers: int | None = None
    count_tokens: int | None = None
    """Tokens up to which projections are counted."""
    context_tokens: int | None = None
    batches: tuple[int, ...] = ()
    repeat: int | None = None
    seed: int | None = None
    quick: bool = False
    gpu: str | None = None
    catalogs: tuple[str, ...] = ()


@frozen
class _Plan:
    """An ask with every value there."""

    model: Model
    count_tokens: int
    context_tokens: int
    batches: tuple[int, ...]
    repeat: int
    seed: int
    inputs: tuple[Input, ...]


@frozen
class _Prices:
    """How steps are priced: by the curves of each cache, and by the roofline alone."""

    machine: MachineResult
    contiguous: StepClock
    paged: StepClock
    ideal: StepClock
    warnings: tuple[str, ...]


def lab(
    ask: LabAsk, instruments: Instruments, *, explain: bool = False, computer: Computer | None = None
) -> Answer[LabResult]:
    """Run the numpy engine on this computer and return its times beside those that the roofline predicts.

    Raises:
        UsageError: a value out of range.
        UnknownName: a GPU that the catalog does not know.
        DoesNotFit: the computer has too little memory for the model.

    """
    computer = computer or this_computer()
    plan = _plan(ask, computer)
    model, size_bytes = plan.model, weight_bytes(plan.model)
    pool = 0 if ask.gpu else pool_bytes(computer, quick=ask.quick)
    check_memory(computer, size_bytes + pool)
    course = Course(instruments, _num_parts(ask, plan))
    price = _pricing(ask, plan, instruments, computer, course)
    course.begin(f"counting projections up to {plan.count_tokens:,} tokens")
    # As many tokens as were asked for are counted, whatever it takes.
    counting_s = _COUNTING_BUDGETS * instruments.budget_s if ask.count_tokens is None else math.inf
    projections = _projections(plan, instruments, counting_s)
    same = _agreement(plan.seed)
    course.begin(f"making {model.name}: {format_bytes(size_bytes)} of weights")
    cases = _cases(plan, instruments, course)
    prices = price()
    cache_bytes = computer.cache_bytes
    result = LabResult(
        machine=prices.machine,
        model=model.name,
        weight_bytes=size_bytes,
        larger_than_cache=None if cache_bytes is None else size_bytes > cache_bytes,
        rows=tuple(_row(case, prices) for case in cases),
        projections=projections,
        same_tokens=same,
    )
    return Answer(
        command="lab",
        results=(result,),
        inputs=plan.inputs,
        assumptions=_notes(computer, instruments),
        warnings=(*prices.warnings, *_cache_warning(result), *_short_warning(plan, result)),
        explanations=tuple(_explained(case, prices) for case in cases) if explain else (),
    )


def _num_parts(ask: LabAsk, plan: _Plan) -> int:
    """Return how many parts a run tells of."""
    kernels = 0 if ask.gpu else 2
    counting, weights, uncached, prefills = 1, 1, 1, 2
    return kernels + counting + weights + 2 * len(plan.batches) + uncached + prefills


def _plan(ask: LabAsk, computer: Computer) -> _Plan:
    size = ask.size or ("small" if ask.quick else "large")
    model = chosen_model(size, hidden=ask.hidden_size, layers=ask.num_layers, cache_bytes=computer.cache_bytes)
    context = ask.context_tokens or (QUICK_CONTEXT_TOKENS if ask.quick else CONTEXT_TOKENS)
    tokens = ask.count_tokens or (QUICK_COUNT_TOKENS if ask.quick else COUNT_TOKENS)
    batches = tuple(dict.fromkeys(ask.batches)) or BATCHES
    for given, low, high, place in (
        (context, 1, MAX_CONTEXT_TOKENS, "--context"),
        (tokens, 2, MAX_COUNT_TOKENS, "--tokens"),
        (ask.seed or 0, 0, 2**32, "--seed"),
        *((batch, 1, MAX_BATCH, "--batch") for batch in batches),
    ):
        if not low <= given <= high:
            raise UsageError(f"{given}", place=place, hint=f"a whole number from {low} to {high:,}")
    repeat = checked_repeat(ask.repeat, quick=ask.quick)
    values: tuple[tuple[str, object, object, str], ...] = (
        ("size", size, ask.size, "--size"),
        ("hidden_size", model.hidden_size, ask.hidden_size, "--hidden"),
        ("layers", model.num_layers, ask.num_layers, "--layers"),
        ("context", context, ask.context_tokens, "--context"),
        ("tokens", tokens, ask.count_tokens, "--tokens"),
        ("batch", batches, ask.batches, "--batch"),
        ("repeat", repeat, ask.repeat, "--repeat"),
        ("seed", ask.seed or 0, ask.seed, "--seed"),
    )
    inputs = [
        Input(name=name, value=value, origin=f"given ({flag})" if given not in {None, ()} else "default")
        for name, value, given, flag in values
    ]
    inputs.append(Input(name="num_threads", value=computer.num_threads, origin="the computer"))
    return _Plan(
        model=model,
        count_tokens=tokens,
        context_tokens=context,
        batches=batches,
        repeat=repeat,
        seed=ask.seed or 0,
        inputs=tuple(inputs),
    )


def _projections(plan: _Plan, instruments: Instruments, budget_s: float) -> tuple[Projection, ...]:
    weights = random_weights(_COUNTING, plan.seed, dtype=np.float32)
    transformer = Transformer(_COUNTING, weights, plan.count_tokens, arithmetic=BATCHED)
    return tuple(
        point
        for cache in _COUNTED
        for point in counted(
            transformer, cache, instruments, num_tokens=plan.count_tokens, num_points=_NUM_POINTS, budget_s=budget_s
        )
    )


def _agreement(seed: int) -> bool:
    """Return whether every cache gives the same tokens: in double precision, in arithmetic that fixes the bits."""
    transformer = Transformer(_AGREEING, random_weights(_AGREEING, seed), 2 * _ANSWER_TOKENS, arithmetic=EXACT)
    found = [
        answers(transformer, cache, num_tokens=_ANSWER_TOKENS, seed=seed) for cache in (NO_CACHE, CONTIGUOUS, PAGED)
    ]
    return found[0] == found[1] == found[2]


def _pricing(
    ask: LabAsk, plan: _Plan, instruments: Instruments, computer: Computer, course: Course
) -> Callable[[], _Prices]:
    """Time kernels, or look up the GPU that was named; return what prices steps, after kernels were timed again."""
    model = plan.model
    if ask.gpu:
        catalog = load(Ask(catalogs=ask.catalogs))
        gpu = catalog.gpu(ask.gpu).gpu
        efficiency = catalog.efficiency(gpu)
        stated = _stated(gpu, computer, instruments)
        return lambda: _prices(model, gpu, efficiency, efficiency, stated)
    made = probes(model, pool_bytes(computer, quick=ask.quick), quick=ask.quick)
    course.begin(f"timing {len(made)} kernels")
    before = timings(made, instruments, plan.repeat)

    def after() -> _Prices:
        course.begin("timing the kernels once more")
        halves = (before, timings(made, instruments, plan.repeat))
        found = measured(made, halves, computer, model, instruments)
        return _prices(
            model,
            found.gpu,
            found.efficiency,
            found.paged,
            machine_result(found, instruments),
            warnings=noise_warnings(found),
        )

    return after


def _prices(
    model: Model,
    gpu: Gpu,
    contiguous: GpuEfficiency,
    paged: GpuEfficiency,
    machine: MachineResult,
    *,
    warnings: tuple[str, ...] = (),
) -> _Prices:
    kv = KV_FORMATS["fp32"]
    return _Prices(
        machine=machine,
        contiguous=StepClock(model, curves_of(gpu, contiguous), kv=kv),
        paged=StepClock(model, curves_of(gpu, paged), kv=kv),
        ideal=StepClock(model, curves_of(gpu), kv=kv, extent=Extent.ROOFLINE, elementwise_io=ElementwiseIo.FUSED),
        warnings=warnings,
    )


def _stated(gpu: Gpu, computer: Computer, instruments: Instruments) -> MachineResult:
    """Return what the catalog says of a GPU, as if it had been measured."""
    precision, peak = max(gpu.peak_flop_per_s, key=lambda pair: pair[0] == "fp32", default=("fp32", 0.0))
    return MachineResult(
        gpu=gpu.name,
        title=gpu.title,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        peak_flop_per_s=peak,
        precision=precision,
        num_threads=computer.num_threads,
        clock=instruments.clock_name,
        numpy_version=np.__version__,
        memory_bytes=computer.memory_bytes,
        cache_bytes=computer.cache_bytes,
        drift_fraction=0.0,
    )


def _cases(plan: _Plan, instruments: Instruments, course: Course) -> tuple[Case, ...]:
    """Run the model: each cache at each batch, no cache at all, and shared prompts."""
    room = 2 * plan.context_tokens + plan.repeat + 64
    weights = random_weights(plan.model, plan.seed, dtype=np.float32)
    transformer = Transformer(plan.model, weights, room, arithmetic=BATCHED)
    runs = [(cache, batch) for batch in plan.batches for cache in (CONTIGUOUS, PAGED)]
    found = []
    for cache, batch in [*runs, (NO_CACHE, 1)]:
        course.begin(f"decode, {cache}, batch {batch}")
        found.append(
            decode(
                transformer,
                cache,
                instruments,
                batch=batch,
                context_tokens=plan.context_tokens,
                num_steps=2 * plan.repeat,
                seed=plan.seed,
            )
        )
    for caching in (False, True):
        course.begin(f"prefill, prefix cache {'on' if caching else 'off'}")
        found.append(
            shared_prompt(
                transformer,
                instruments,
                caching=caching,
                prompt_tokens=plan.context_tokens,
                num_steps=plan.repeat,
                seed=plan.seed,
            )
        )
    return tuple(found)


def _row(case: Case, prices: _Prices) -> LabRow:
    clock = _clock(case, prices)
    predicted_s, times, held = clock.step_s(**case.held), case.times, case.held
    return LabRow(
        case=case.name,
        batch=case.batch,
        context_tokens=held.get("context_tokens", held.get("cached_tokens", 0)),
        new_tokens=held.get("new_tokens", 1),
        measured_s=times.time_s,
        measured_s_low=times.low_s,
        measured_s_high=times.high_s,
        predicted_s=predicted_s,
        error_fraction=predicted_s / times.time_s - 1,
        ideal_s=prices.ideal.step_s(**held),
        bound_by=_bound(clock.parts(**held)),
        num_steps=times.num_runs,
    )


def _clock(case: Case, prices: _Prices) -> StepClock:
    return prices.paged if case.cache == PAGED else prices.contiguous


def _bound(parts: tuple[StepPart, ...]) -> str:
    """Return what most of a step's time is spent on."""
    shares: dict[str, float] = {}
    for part in parts:
        shares[part.bound_by] = shares.get(part.bound_by, 0.0) + part.time_s
    return str(max(shares, key=lambda bound: shares[bound]))


def _explained(case: Case, prices: _Prices) -> Explanation:
    parts = _clock(case, prices).parts(**case.held)
    total_s = sum(part.time_s for part in parts)
    addends = " + ".join(f"{part.name} {format_seconds(part.time_s)} ({part.bound_by})" for part in parts)
    machine = prices.machine
    return Explanation(
        quantity=f"predicted_s of {case.name}, batch {case.batch}",
        formula="sum over ops of the longer of flop / (peak x fraction) and bytes / (bandwidth x fraction), + latency",
        substituted=f"{addends} = {format_seconds(total_s)}",
        inputs=(
            Input(name="bandwidth_bytes_per_s", value=machine.bandwidth_bytes_per_s, origin=machine.gpu),
            Input(name="peak_flop_per_s", value=machine.peak_flop_per_s, origin=machine.gpu),
        ),
        source="Williams, Waterman, Patterson 2009; curves of kernels timed one by one",
    )


def _notes(computer: Computer, instruments: Instruments) -> tuple[str, ...]:
    how = f"{instruments.clock_name} clock, single precision, threads of linear algebra: {computer.num_threads}"
    return (
        f"times ({how}) are lower quartiles; low is the least of all, high what nine of ten keep to",
        "that the caches agree is tested in double precision, in arithmetic that fixes every bit",
        "predictions rest on kernels that were timed one by one; no step is an input of its own prediction",
    )


def _short_warning(plan: _Plan, result: LabResult) -> tuple[str, ...]:
    """Return a warning where time did not do for what was asked: fewer tokens counted, or few repeats of a step."""
    talk = []
    reached = min(
        max((one.tokens for one in result.projections if one.cache == cache), default=0) for cache in _COUNTED
    )
    if reached < plan.count_tokens:
        talk.append(f"projections were counted up to token {reached:,} of {plan.count_tokens:,}: this computer is slow")
    few = [row for row in result.rows if row.num_steps <= LEAST_RUNS < plan.repeat]
    if few:
        talk.append(
            f"{len(few)} of {len(result.rows)} kinds of steps were run {LEAST_RUNS} times or fewer, to keep to the "
            "time they may take: other programs are at work, or the threads of linear algebra wait for each "
            "other (--threads 1); fewer --layers or --size small is quicker"
        )
    return tuple(talk)


def _cache_warning(result: LabResult) -> tuple[str, ...]:
    if result.larger_than_cache is not False:
        return ()
    weights, cache = format_bytes(result.weight_bytes), format_bytes(result.machine.cache_bytes or 0)
    text = f"the weights ({weights}) fit into the last-level cache ({cache}), and predictions count on memory"
    return (f"{text}: --size large is larger",)

"""Why a measurement falls short: what the estimate itself loses against the floor, and what else may be otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.deployment import load, resolve
from infcalc.api.judging import Cause, Judgement, Measurement, Suspect, judge
from infcalc.api.speed import figure_of, front_end_s, machine_of, run_of, site_of
from infcalc.errors import InfcalcError, UsageError
from infcalc.lowering.ops import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infcalc.api.deployment import Ask, Deployment
    from infcalc.api.speed import Run, SpeedResult

_OLDER = {"vllm": "0.6.3", "sglang": "0.4", "tensorrt-llm": "0.17"}
_MOST_SEQUENCES = 4096
_LEAST_FRACTION = 0.01
_MESSAGES = frozenset({*(kind.value for kind in COLLECTIVES), "host"})


def judged(run: Run, result: SpeedResult, measured: tuple[Measurement, ...]) -> tuple[Judgement, ...]:
    """Return each measurement held against floor and estimate.

    Raises:
        UsageError: a measurement of what this load does not have.

    """
    found = []
    for one in measured:
        figure = figure_of(result, one.quantity)
        if figure is None:
            raise UsageError(
                f"{one.quantity}: this load has none",
                place="--measured",
                hint="an answer of one token has no time per token, and a load beyond saturation no time at all",
            )
        limit, hard = limits_of(run, one.quantity)
        found.append(
            judge(
                one,
                figure,
                limit=limit,
                hard_limit=hard,
                offered=offered_to(run, one.quantity),
                losses=_losses(run, result, one, limit),
                suspects=_asked_later(run, one),
            )
        )
    return tuple(found)


def _asked_later(run: Run, one: Measurement) -> Callable[[], list[Suspect]]:
    return lambda: _suspects(run, one)


def limits_of(run: Run, quantity: str) -> tuple[float, float]:
    """Return floor (or ceiling) of the load as estimated, and that which no load of the kind can pass."""
    floors = run.floors
    batch = run.load.offer.batch
    # With skewed routing a batch may touch few experts: only what one sequence needs is sure to be read.
    fixed = batch is not None and batch <= run.server.num_places and not run.machine.deployment.model.has_experts
    least_s, alone_s, answer = floors.tpot_s, floors.tpot_s if fixed else floors.alone_s, run.asked.answer_tokens
    limits = {
        "ttft_s": (floors.ttft_s, floors.ttft_s),
        "tpot_s": (least_s, alone_s),
        "e2e_s": (floors.e2e_s, floors.e2e_s),
        "tpot_inclusive_s": (floors.e2e_s / answer, floors.e2e_s / answer),
        "output_tokens_per_s_per_user": (1 / least_s, 1 / alone_s),
        "requests_per_s": (floors.requests_per_s, floors.requests_per_s),
    }
    most = floors.requests_per_s * answer
    return limits.get(quantity, (most, most))


def offered_to(run: Run, quantity: str) -> float | None:
    """Return how much of a rate is asked for, where requests arrive at one without end."""
    offer = run.load.offer
    if offer.requests_per_s is None or offer.num_requests is not None:
        return None
    return {
        "requests_per_s": offer.requests_per_s,
        "output_tokens_per_s": offer.requests_per_s * run.asked.answer_tokens,
    }.get(quantity)


# What the estimate itself loses --------------------------------------------------------------------------------------


def _losses(run: Run, result: SpeedResult, one: Measurement, limit: float) -> list[Cause]:
    """Return where the estimate's own time goes beyond the floor, as fractions of the measured gap."""
    if one.quantity == "ttft_s":
        parts, gap = _ttft_parts(run), one.value - limit
    else:
        parts = _tpot_parts(run, result)
        figure = figure_of(result, one.quantity)
        if figure is None:
            return []
        # Of a rate, or a whole request, most is decode: the time per token that would go with it.
        slower = figure.value / one.value if one.is_rate else one.value / figure.value
        gap = run.speed.tpot_s * slower - run.floors.tpot_s
    if gap <= 0:
        return []
    whole = sum(lost for _, lost, _ in parts)
    scale = min(1.0, gap / whole) if whole else 1.0
    rows = [
        Cause(cause=name, gap_fraction=lost * scale / gap, why=why)
        for name, lost, why in parts
        if lost * scale > _LEAST_FRACTION * gap
    ]
    return sorted(rows, key=lambda row: -(row.gap_fraction or 0.0))


_Lost = tuple[str, float, str]
"""Name, seconds, and why."""


def _tpot_parts(run: Run, result: SpeedResult) -> list[_Lost]:
    step = result.step
    if step is None:
        return []
    engine_s = sum(part.time_s.value for part in step.parts if part.kind == "engine")
    links_s = sum(part.time_s.value for part in step.parts if part.kind in _MESSAGES)
    kernels_s = max(0.0, step.time_s.value - step.floor_s - engine_s - links_s)
    woven_s = max(0.0, run.speed.tpot_s - step.time_s.value)
    parts = [
        (
            "kernels below peak",
            kernels_s,
            "no kernel reaches 100 % of peak or bandwidth; small batches and narrow shards least",
        ),
        ("links", links_s, "messages between GPUs, weights from the host"),
        ("engine overhead", engine_s, "launches between kernels, scheduling and sampling, every step"),
    ]
    if run.speed.bound_by == "front end":
        parts.append(("front end", woven_s, "HTTP, tokenising and streaming in one process cannot keep up"))
    else:
        parts.append(("prefill of other requests", woven_s, "prompts ride in decode steps, or stop them"))
    return parts


def _ttft_parts(run: Run) -> list[_Lost]:
    speed, front_s = run.speed, front_end_s(run)
    own = run.asked.prompt_tokens
    chunk = min(own, run.server.budget_tokens)
    step_s = float(
        run.server.clock.step_s(
            num_decodes=0, context_tokens=0, num_prefills=1, new_tokens=chunk, cached_tokens=run.asked.cached_tokens
        )
    )
    alone_s = own / chunk * step_s
    below_s = max(0.0, min(alone_s, speed.ttft_s) - run.floors.ttft_s)
    rest_s = max(0.0, speed.ttft_s - speed.queue_s - front_s - run.floors.ttft_s - below_s)
    return [
        ("queue", speed.queue_s, "all places are taken: waiting for memory or for the engine's cap"),
        ("other requests", rest_s, "prompts before it, and decode steps that its own chunks ride in"),
        ("prefill below peak", below_s, "no kernel reaches 100 % of peak; short prompts least"),
        ("front end", front_s, "HTTP and tokenising before the scheduler sees it"),
    ]


# What may be otherwise -----------------------------------------------------------------------------------------------


def _suspects(run: Run, one: Measurement) -> list[Suspect]:
    """Return what could be otherwise than asked, each with what the model then gives."""
    machine = run.machine
    deployment, ask = machine.deployment, machine.site.ask
    found: list[Suspect] = []

    def tried(cause: str, why: str, changed: Deployment, of: Ask = ask) -> None:
        try:
            other = run_of(machine_of(site_of(of, changed, machine.site.catalog)), run.load)
        except InfcalcError:
            return
        value = _value(other, one.quantity)
        if value is not None:
            found.append(Suspect(cause=cause, why=why, value=value))

    def asked(cause: str, why: str, of: Ask) -> None:
        try:
            (changed,) = resolve(of, load(of))
        except InfcalcError:
            return
        tried(cause, why, changed, of)

    if deployment.parallelism.num_gpus > 1 and deployment.gpu.scale_up is not None:
        # Under another name, so that collectives are those of its links and not those measured on it.
        gpu = replace(deployment.gpu, name=f"{deployment.gpu.name} over PCIe", scale_up=None)
        slow = replace(deployment, gpu=gpu)
        tried("messages over PCIe", "no NVLink between these GPUs, or peer access is off (nvidia-smi topo -m)", slow)
    for cause, why, other in _other_asks(ask, deployment):
        asked(cause, why, other)
    if one.quantity != "ttft_s":
        found += _larger(run, one)
    return found


def _other_asks(ask: Ask, deployment: Deployment) -> Iterator[tuple[str, str, Ask]]:
    older = _OLDER.get(deployment.rules.engine)
    if older is not None:
        yield (
            f"an older engine ({deployment.rules.engine} {older})",
            "slower scheduler and front end; look at the version in the log",
            replace(ask, engine_version=older),
        )
    if not ask.enforce_eager:
        yield (
            "CUDA graphs off",
            "--enforce-eager, or a batch larger than those captured: every kernel is then launched by the host",
            replace(ask, enforce_eager=True),
        )
    if not deployment.weights.endswith(("16", "32")):
        yield (
            "weights in 16 bit after all",
            f"{deployment.weights} kernels that fall back, or dequantise first (look for the kernel's name in the log)",
            replace(ask, weights="bf16"),
        )


def _value(run: Run, quantity: str) -> float | None:
    speed = run.speed
    if quantity == "output_tokens_per_s_per_user":
        return 1 / speed.tpot_s if speed.tpot_s else None
    if quantity == "tpot_inclusive_s":
        return speed.e2e_s / run.asked.answer_tokens
    found: float = getattr(speed, quantity)
    return found


def _larger(run: Run, one: Measurement) -> list[Suspect]:
    """Return how many sequences, or how long ones, would make a decode step as long as was measured."""
    if one.quantity not in {"tpot_s", "output_tokens_per_s_per_user"}:
        return []
    per_user = one.quantity != "tpot_s"
    target_s = 1 / one.value if per_user else one.value
    clock, lanes = run.server.clock, run.server.num_lanes
    lane = max(1.0, run.speed.num_decodes / lanes)
    now = max(1, round(lane * lanes))
    count = lane
    while count < _MOST_SEQUENCES:
        count *= 1.25
        if float(clock.step_s(num_decodes=count, context_tokens=run.asked.live_tokens)) >= target_s:
            return [
                Suspect(
                    cause=f"some {round(count * lanes):,} sequences in a step instead of {now:,}",
                    why="requests of others on the same server (look at the running requests in its log)",
                    value=one.value,
                )
            ]
    return []


def routing_note(deployment: Deployment) -> list[str]:
    """Return what the floors of routed experts rest on; nothing for a dense model."""
    if not deployment.model.has_experts:
        return []
    return ["floors of routed experts take even routing: with skewed routing fewer experts are read"]

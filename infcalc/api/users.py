"""How many requests and users a pool serves, for the lengths that requests really have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.api.ranges import check_range
from infcalc.api.sizing import page_settings
from infcalc.engines.admission import admission
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.memory.blocks import paged_bytes, plan, state_slots
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_seconds
from infcalc.workload.lengths import FORMS, Lengths, described, mean_tokens, parse_lengths
from infcalc.workload.residence import (
    P95,
    Demand,
    Part,
    demand,
    live_quantile_tokens,
    mean_live_tokens,
    requests_within,
    share_beyond,
    users_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.deployment import Deployment
    from infcalc.api.filling import MemoryResult
    from infcalc.api.fitting import ConcurrencyRow
    from infcalc.memory.blocks import PageGroup, PagePlan
    from infcalc.memory.budget import Budget
    from infcalc.spec.kv import KvFormat

_SLOWEST_MEASURED_FRACTION = 0.43
"""Of peak bandwidth, of a whole decode step: 43 to 77 % measured on H100, B200 and RTX 4090, vLLM 0.6 to 0.19."""
_MAX_TIME_S = 1e9
_MAX_USERS = 1_000_000
_NOTEWORTHY_FRACTION = 0.005
_MOST_FRACTION = 0.5


@frozen
class Load:
    """What users send: lengths as numbers or distributions (as :mod:`infcalc.workload.lengths` reads them), and pauses.

    ``think_time_s`` passes between an answer and the same user's next request. ``service_time_s`` is from sending a
    request to the end of its answer; None: the ideal roofline's floor. ``users`` are those that shall be served; alone,
    each of them holds a sequence of the asked context.
    """

    input_tokens: str | int | None = None
    output_tokens: str | int | None = None
    think_time_s: float | None = None
    service_time_s: float | None = None
    users: int | None = None


@frozen
class Traffic:
    """A :class:`Load` as it was understood."""

    inputs: Lengths
    outputs: Lengths
    think_time_s: float
    service_time_s: float | None

    @property
    def mean_total_tokens(self) -> float:
        """Mean of prompt and answer together."""
        return mean_tokens(self.inputs) + mean_tokens(self.outputs)


@frozen
class Pool:
    """The KV pool of one GPU of a pipeline stage, in bytes, with its band."""

    value_bytes: int
    low_bytes: int
    high_bytes: int


@frozen
class Service:
    """Requests and users of one KV precision. Requests run at once; users are those who send them, thinking between.

    ``requests`` fill the pool at their mean demand; ``requests_p95`` are so many fewer that it suffices 95 % of the
    time. Low and high follow the band of the pool. ``users`` is None where no service time can be had.
    """

    mean_live_tokens: float
    p95_live_tokens: float
    """Of one running request at a random moment."""
    requests: int
    requests_low: int
    requests_high: int
    requests_p95: int
    service_time_s: float | None
    users: int | None
    users_low: int | None
    users_high: int | None


@frozen
class Asked:
    """Whether the users that were asked for fit: ``sequences_needed`` run at once where so many are served.

    Both are None where no service time can be had.
    """

    users_asked: int
    sequences_needed: int | None
    users_fit: bool | None


def read_load(load: Load | None) -> Traffic | None:
    """Return what ``load`` says of requests; None where it says nothing of them.

    Raises:
        UsageError: a length that is no distribution, one of the two missing, or a number out of range.

    """
    if load is None:
        return None
    check_range("--users", load.users, most=_MAX_USERS)
    if load == Load(users=load.users):
        return None
    stated = ((load.input_tokens, "--input-tokens"), (load.output_tokens, "--output-tokens"))
    # What is wrong with the one that is there is told before the lack of the other.
    for value, option in stated:
        if value is not None:
            _lengths(value, option)
    for value, option in stated:
        if value is None:
            raise UsageError(
                "users need both lengths of a request", place=option, hint="give --input-tokens and --output-tokens"
            )
    for time_s, option in ((load.think_time_s, "--think-time"), (load.service_time_s, "--service-time")):
        least = 0 if option == "--think-time" else 1e-6
        if time_s is not None and not least <= time_s <= _MAX_TIME_S:
            raise UsageError(f"{time_s:g} seconds is out of range", place=option, hint="write 30s or 500ms")
    return Traffic(
        inputs=_lengths(load.input_tokens, "--input-tokens"),
        outputs=_lengths(load.output_tokens, "--output-tokens"),
        think_time_s=load.think_time_s or 0.0,
        service_time_s=load.service_time_s,
    )


def traffic_inputs(traffic: Traffic) -> tuple[Input, ...]:
    """Return the inputs of a load for the answer's list."""
    given = "given"
    found = [
        Input(name="input_tokens", value=described(traffic.inputs), origin=given),
        Input(name="output_tokens", value=described(traffic.outputs), origin=given),
    ]
    if traffic.think_time_s:
        found.append(Input(name="think_time_s", value=traffic.think_time_s, origin=given))
    if traffic.service_time_s is not None:
        found.append(Input(name="service_time_s", value=traffic.service_time_s, origin=given))
    return tuple(found)


def stage_pools(stages: Sequence[Budget]) -> list[Pool]:
    """Return the KV pool of the least rank of each pipeline stage."""
    return [
        Pool(
            value_bytes=stage.least_pool_bytes,
            low_bytes=stage.least_pool_low_bytes,
            high_bytes=stage.least_pool_high_bytes,
        )
        for stage in stages
    ]


def service_fields(served: Service | None, asked: Asked | None) -> dict[str, Any]:
    """Return what is known of requests and users, by the keys that answers have for it."""
    parts = (part for part in (served, asked) if part is not None)
    return {name: getattr(part, name) for part in parts for name in part.__dataclass_fields__}


def asked_users(
    deployment: Deployment,
    form: KvFormat,
    users: int,
    *,
    traffic: Traffic | None,
    served: Service | None,
    sequences: int,
) -> Asked:
    """Return whether ``users`` fit: into ``sequences`` of one length each, or into the requests of their traffic.

    Users who think hold nothing meanwhile, so that fewer requests than users run: the fewest whose users are as many.
    """
    if traffic is None or served is None:
        return Asked(users_asked=users, sequences_needed=users, users_fit=users <= sequences)
    needed = _needed(deployment, form, users, traffic, served.mean_live_tokens)
    return Asked(
        users_asked=users,
        sequences_needed=needed,
        users_fit=None if needed is None else needed <= served.requests,
    )


def _needed(deployment: Deployment, form: KvFormat, users: int, traffic: Traffic, live: float) -> int | None:
    """Return the fewest requests at once that ``users`` keep running; None where no service time can be had."""
    fewest, most = 1, users
    while fewest < most:
        middle = (fewest + most) // 2
        served = _users(middle, traffic, _service_time_s(deployment, form, traffic, middle, live))
        if served is None:
            return None
        if served >= users:
            most = middle
        else:
            fewest = middle + 1
    return fewest


def asked_warnings(deployment: Deployment, row: ConcurrencyRow | MemoryResult) -> tuple[str, ...]:
    """Return what stands between the asked users and their answers: memory, its margin, the cap of the engine."""
    if row.users_asked is None:
        return ()
    where = f"{deployment.model.name}, KV in {row.kv_dtype}"
    if row.sequences_needed is None:
        peaks = f"{deployment.gpu.name} has no published peaks"
        return (f"{where}: whether {row.users_asked:,} users fit needs --service-time, for {peaks}",)
    needed, found = row.sequences_needed, []
    served, safe, low = row.requests, row.requests_p95, row.requests_low
    if not row.users_fit:
        room = row.sequences if served is None else served
        found.append(f"{where}: {row.users_asked:,} users need {needed:,} sequences at once, and {room:,} fit")
    elif served is not None and safe is not None and low is not None and needed > min(safe, low):
        found.append(
            f"{where}: {row.users_asked:,} users need {needed:,} requests at once: {served:,} fit at their mean "
            f"demand, {safe:,} with 95 % safety, {low:,} at the low end of the pool"
        )
    elif row.users_low is not None and row.users_asked > row.users_low:
        found.append(
            f"{where}: {row.users_asked:,} users fit where steps are as fast as the roofline allows; with the slowest "
            f"measured and the low end of the pool {row.users_low:,} do (--service-time takes a measured time instead)"
        )
    cap = deployment.max_num_seqs * deployment.parallelism.dp
    if row.users_fit and needed > cap:
        found.append(
            f"{row.users_asked:,} users need {needed:,} sequences at once, and {deployment.rules.engine} runs at most "
            f"{cap:,} (max_num_seqs): the rest wait, unless --max-num-seqs is raised"
        )
    return tuple(found)


def service(deployment: Deployment, form: KvFormat, pools: Sequence[Pool], traffic: Traffic) -> Service:
    """Return the requests and users that ``pools`` (one per pipeline stage) serve; the scarcest stage decides."""
    reserved = admission(deployment.rules.engine).reserves_answer
    dp = deployment.parallelism.dp
    each = _demands(deployment, form, traffic, len(pools), reserved=reserved)

    def fitting(sizes: Sequence[int], probability: float | None = None) -> int:
        counts = [
            int(_held(size, cut, one, probability) + 1e-9) * dp
            for size, (cut, one) in zip(sizes, each, strict=True)
            if one.mean_bytes > 0
        ]
        return min(counts, default=0)

    values = [pool.value_bytes for pool in pools]
    requests = fitting(values)
    requests_low = fitting([pool.low_bytes for pool in pools])
    requests_high = fitting([pool.high_bytes for pool in pools])
    live = mean_live_tokens(traffic.inputs, traffic.outputs, reserved=reserved)
    slow = 1.0 if traffic.service_time_s is not None else _SLOWEST_MEASURED_FRACTION
    time_s = _service_time_s(deployment, form, traffic, requests, live)
    return Service(
        mean_live_tokens=live,
        p95_live_tokens=live_quantile_tokens(traffic.inputs, traffic.outputs, P95, reserved=reserved),
        requests=requests,
        requests_low=requests_low,
        requests_high=requests_high,
        requests_p95=fitting(values, P95),
        service_time_s=time_s,
        users=_users(requests, traffic, time_s),
        users_low=_users(
            requests_low, traffic, _divided(_service_time_s(deployment, form, traffic, requests_low, live), slow)
        ),
        users_high=_users(requests_high, traffic, _service_time_s(deployment, form, traffic, requests_high, live)),
    )


def requests_in(deployment: Deployment, form: KvFormat, traffic: Traffic, pools: Sequence[float]) -> float:
    """Return how many requests, at their mean demand, pools of so many bytes hold (one per pipeline stage).

    Of the whole replica, not rounded; infinite where a request holds nothing.
    """
    reserved = admission(deployment.rules.engine).reserves_answer
    each = _demands(deployment, form, traffic, len(pools), reserved=reserved)
    counts = [_held(size, cut, one) for size, (cut, one) in zip(pools, each, strict=True) if one.mean_bytes > 0]
    return min(counts, default=float("inf")) * deployment.parallelism.dp


def service_notes(deployment: Deployment, traffic: Traffic) -> tuple[str, ...]:
    """Return what requests and users rest on."""
    rule = admission(deployment.rules.engine)
    held = "prompt and whole answer" if rule.reserves_answer else "prompt and the part of the answer given so far"
    life = (
        f"a running request holds its {held}, averaged over its life (long answers are met more often), lengths "
        "independent of one another, with half a block of rounding"
    )
    full = (
        "requests fill the pool at their mean demand; at requests_p95 it suffices 95 % of the time (normal "
        f"approximation of the sum); when it is full {deployment.rules.engine} {rule.overflow} ({rule.source})"
    )
    found = [life, full]
    if traffic.think_time_s and traffic.service_time_s is None:
        found.append(
            "service_time_s is a floor (ideal roofline: its own prompt and one step per answer token at that batch, or "
            "the prompts of all that run beside it where those take longer), so users are at most that many; users_low "
            f"takes {_SLOWEST_MEASURED_FRACTION:.0%} of peak, as the slowest step measured"
        )
    return tuple(found)


def service_warnings(deployment: Deployment, traffic: Traffic) -> tuple[str, ...]:
    """Return a warning when some requests are longer than the model or the server admits."""
    own = deployment.model.max_context_tokens
    limit = deployment.max_model_len if own is None else min(own, deployment.max_model_len)
    share = share_beyond(traffic.inputs, traffic.outputs, limit)
    if share < _NOTEWORTHY_FRACTION:
        return ()
    whose = f"of {deployment.model.name}" if limit == own else "that --max-model-len admits"
    return (f"{share:.1%} of the requests are longer than the {limit:,} tokens {whose}",)


def check_lengths(deployment: Deployment, traffic: Traffic | None) -> None:
    """Refuse a longest sequence, asked for, that most of the asked requests exceed: the engine rejects them all.

    Raises:
        UsageError: with a length that admits nearly all.

    """
    limit = deployment.max_model_len
    stated = any(item.name == "max_model_len" and item.origin.startswith("given") for item in deployment.inputs)
    if traffic is None or not stated:
        return
    share = share_beyond(traffic.inputs, traffic.outputs, limit)
    if share <= _MOST_FRACTION:
        return
    fewest = limit
    while share_beyond(traffic.inputs, traffic.outputs, fewest) > _NOTEWORTHY_FRACTION:
        fewest *= 2
    low = fewest // 2
    while low + 1 < fewest:
        middle = (low + fewest) // 2
        if share_beyond(traffic.inputs, traffic.outputs, middle) > _NOTEWORTHY_FRACTION:
            low = middle
        else:
            fewest = middle
    raise UsageError(
        f"{share:.1%} of the requests are longer than {limit:,} tokens: {deployment.rules.engine} rejects them",
        place="--max-model-len",
        hint=f"--max-model-len {fewest} admits all but {_NOTEWORTHY_FRACTION:.1%}; or give shorter requests",
    )


def explain_service(row: ConcurrencyRow | MemoryResult, traffic: Traffic) -> tuple[Explanation, ...]:
    """Return how live tokens, requests and users of a row came about."""
    prompt, live = mean_tokens(traffic.inputs), row.mean_live_tokens or 0.0
    lengths = traffic_inputs(traffic)
    found = [
        Explanation(
            quantity="mean_live_tokens",
            formula="E[i] + E[o^2]/(2 E[o]); twice the second part where the whole answer is reserved",
            substituted=f"{prompt:,.1f} + {live - prompt:,.1f} = {live:,.1f}",
            inputs=lengths,
            source="residence time of a request, met at a random moment",
        ),
        Explanation(
            quantity="requests",
            formula="KV pool / mean bytes of one running request",
            substituted=f"{row.requests:,} in {row.kv_dtype}; {row.requests_p95:,} suffice 95 % of the time",
            inputs=lengths,
        ),
    ]
    if row.users is not None and row.service_time_s is not None:
        think, done = format_seconds(traffic.think_time_s), format_seconds(row.service_time_s)
        found.append(
            Explanation(
                quantity="users",
                formula="requests x (1 + think time / service time)",
                substituted=f"{row.requests:,} x (1 + {think} / {done}) = {row.users:,}",
                inputs=lengths,
                source="interactive response-time law, N = X (R + Z)",
            )
        )
    return tuple(found)


def _lengths(value: str | int | None, option: str) -> Lengths:
    try:
        return parse_lengths(str(value))
    except ValueError as wrong:
        raise UsageError(str(wrong), place=option, hint=f"write {FORMS}") from None


def _held(pool_bytes: float, cut: PagePlan, one: Demand, probability: float | None = None) -> float:
    """Return the requests that a pool holds: in its pages, and in its slots of recurrent states where it has such."""
    whole = int(pool_bytes)
    slots = state_slots(whole, cut)
    if slots is None:
        return requests_within(pool_bytes, one, probability)
    return min(requests_within(paged_bytes(whole, cut), one, probability), slots)


def _demands(
    deployment: Deployment, form: KvFormat, traffic: Traffic, num_stages: int, *, reserved: bool
) -> list[tuple[PagePlan, Demand]]:
    """Return for each pipeline stage how its pool is cut and what a request holds of it."""
    rules, settings, parallelism = deployment.rules, page_settings(deployment), deployment.parallelism
    cuts = [plan(deployment.model, form, parallelism, rules, settings, stage=stage) for stage in range(num_stages)]
    return [(cut, _demand(deployment, cut, traffic, reserved=reserved)) for cut in cuts]


def _demand(deployment: Deployment, cut: PagePlan, traffic: Traffic, *, reserved: bool) -> Demand:
    """Return what a request holds on a rank whose pool is cut by ``cut``.

    In the pages of the pool, as ``sequences`` are counted, with half a block of rounding.
    """
    rules, settings, parallelism = deployment.rules, page_settings(deployment), deployment.parallelism
    pages = (rules.recurrent_pages if settings.prefix_caching else 1) + settings.num_draft_tokens
    states = sum(group.recurrent for group in cut.groups) * pages
    parts = [_part(group, cut.block_bytes, parallelism.dcp) for group in cut.groups if not group.recurrent]
    constant = cut.decoding_bytes_per_request + states * cut.block_bytes
    return demand(traffic.inputs, traffic.outputs, tuple(parts), constant_bytes=constant, reserved=reserved)


def _part(group: PageGroup, block_bytes: int, dcp: int) -> Part:
    """Return a page group as a part of a request's cache: half a block is rounding, and a window straddles one more."""
    block = group.block_tokens
    window = group.window_tokens
    if window is not None:
        return Part(
            bytes_per_token=block_bytes / block,
            window_tokens=(-(-window // block) + 1) * block,
            padding_tokens=0.5 * (block - 1),
        )
    return Part(bytes_per_token=block_bytes / block / dcp, padding_tokens=0.5 * (block - 1) * dcp)


def _service_time_s(
    deployment: Deployment, form: KvFormat, traffic: Traffic, requests: int, live: float
) -> float | None:
    """Return the time of one request: as given, or the roofline's floor with ``requests`` decoding together.

    The floor is the prompt alone and one step per answer token; nor can a request be done sooner than the prompts of
    all its neighbours are computed, one for each of them in its life.
    """
    if traffic.service_time_s is not None or not traffic.think_time_s or requests < 1:
        return traffic.service_time_s
    from infcalc.lowering.ops import Prefill, StepShape, operations  # noqa: PLC0415 - only for users who think
    from infcalc.roofline.step import decode_timer, step_time  # noqa: PLC0415

    timer = decode_timer(
        deployment.model,
        deployment.gpu,
        parallelism=deployment.parallelism,
        quantization=deployment.quantization,
        kv=form,
        context_tokens=max(1, round(live)),
    )
    prompt = StepShape(prefills=(Prefill(new_tokens=max(1, round(mean_tokens(traffic.inputs)))),))
    try:
        decode_s = timer(requests, 1)
        prefill = step_time(
            operations(
                deployment.model,
                prompt,
                parallelism=deployment.parallelism,
                quantization=deployment.quantization,
                kv=form,
            ),
            deployment.gpu,
        )
    except UsageError:
        # A GPU without published peaks has no roofline; requests still stand, users cannot.
        return None
    neighbours = -(-requests // deployment.parallelism.dp)
    return max(prefill.time_s + mean_tokens(traffic.outputs) * decode_s, neighbours * prefill.compute_s)


def _divided(time_s: float | None, fraction: float) -> float | None:
    return None if time_s is None else time_s / fraction


def _users(requests: int, traffic: Traffic, time_s: float | None) -> int | None:
    if not traffic.think_time_s or requests == 0:
        return requests
    if time_s is None:
        return None
    return int(users_of(requests, think_time_s=traffic.think_time_s, service_time_s=time_s) + 1e-9)

"""How fast: time to first token, time per token and throughput of a deployment under a load."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.bands import band, basis_of, class_of
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve, single_kv_dtype
from infcalc.api.servers import answer_nodes, clock_of, room_for, server_of
from infcalc.engines.pace import pace
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.serving.server import Requests, in_batch, in_closed_loop, in_open_run, in_run
from infcalc.spec.explain import Input
from infcalc.workload.lengths import Exponential, Lognormal, described, mean_tokens, parse_lengths

if TYPE_CHECKING:
    from infcalc.catalog.lookup import Catalog
    from infcalc.serving.server import Server, Speed
    from infcalc.spec.efficiency import Basis
    from infcalc.spec.kv import KvFormat
    from infcalc.workload.lengths import Lengths

_DEFAULT_INPUT = "1024"
_DEFAULT_OUTPUT = "256"
_DOES_NOT_FIT = 3
_MOST_TIME_S = 1e9
_MOST_COUNT = 10_000_000


class LoadKind(StrEnum):
    """How requests reach the server."""

    BATCH = "batch"
    """All at once, none follows: a static batch."""
    CONCURRENCY = "concurrency"
    """Closed loop: so many clients, each sends its next request when it has the answer."""
    RATE = "rate"
    """Open loop: requests arrive at random at a mean rate, whatever the server does."""
    MAXIMUM = "maximum"
    """More than the server can take: as many run as memory and the engine's cap admit."""


@frozen
class Figure:
    """A modelled time or rate: ``low``..``high`` is meant to hold 80 % of measurements."""

    value: float
    low: float
    high: float
    basis: Basis


@frozen
class Offer:
    """The load that is offered: at most one of ``batch``, ``concurrency`` and ``requests_per_s``.

    None of them: the maximum throughput that memory admits. ``input_tokens`` and ``output_tokens`` are numbers or
    distributions as :mod:`infcalc.workload.lengths` reads them. ``num_requests`` makes it a finite run, whose start and
    end count (all at once where nothing paces them); None: the steady state. ``prefix_hit_fraction`` of the prompt's
    tokens is found in the prefix cache.
    """

    input_tokens: str | int | float | None = None
    output_tokens: str | int | float | None = None
    batch: int | None = None
    concurrency: int | None = None
    requests_per_s: float | None = None
    num_requests: int | None = None
    think_time_s: float = 0.0
    prefix_hit_fraction: float = 0.0


@frozen
class EstimateResult:
    """How fast one deployment answers one load; times are means over its requests.

    ``batch`` is the mean number of requests in decode over the whole replica; ``bound_by`` says in words what limits
    the throughput; ``stable`` is False where requests arrive faster than they can be answered: times then grow for as
    long as the load lasts, and those of a finite run are given where its length is known, else infinite.
    """

    model: str
    gpu: str
    num_gpus: int
    engine: str
    engine_version: str
    kv_dtype: str
    load: LoadKind
    input_tokens: float
    """Mean of the prompts."""
    output_tokens: float
    """Mean of the answers."""
    ttft_s: Figure
    """From sending a request to its first token: front end, queue, prefill."""
    tpot_s: Figure
    """Of each token after the first, interference of other requests' prefill included."""
    e2e_s: Figure
    output_tokens_per_s: Figure
    """Of the replica, all requests together; of a finite run over its makespan."""
    output_tokens_per_s_per_user: Figure
    """1 / TPOT: what one user sees while an answer streams."""
    requests_per_s: Figure
    queue_s: float
    """Part of the time to first token that is waiting for a place."""
    batch: float
    max_batch: float
    """Requests that memory and the engine's cap let run at once."""
    stable: bool
    bound_by: str
    warnings: tuple[str, ...] = ()


def estimate(ask: Ask | None = None, offer: Offer | None = None, *, explain: bool = False) -> Answer[EstimateResult]:
    """Return how fast each asked deployment answers the offered load.

    Raises:
        InfcalcError: any of its kinds; does-not-fit is a result with exit code 3.

    """
    del explain
    ask, offer = ask or Ask(), offer or Offer()
    asked = _Asked.read(offer)
    catalog = load(ask)
    results: list[EstimateResult] = []
    inputs: list[tuple[Input, ...]] = []
    notes: list[str] = []
    talk: list[str] = []
    for deployment in resolve(ask, catalog):
        form, origin, said = kv_format(deployment, single_kv_dtype(ask))
        result = _estimated(deployment, form, offer, asked, catalog)
        results.append(result)
        inputs.append(
            (*deployment.inputs, Input(name="kv_dtype", value=form.name, origin=origin), *asked.inputs(offer))
        )
        notes += [*deployment.assumptions, *_notes(deployment, offer)]
        talk += [*deployment.warnings, *said, *result.warnings]
    return Answer(
        command="estimate",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        exit_code=_DOES_NOT_FIT if any(result.max_batch < 1 for result in results) else 0,
    )


@frozen
class _Asked:
    """An offer as it was understood."""

    kind: LoadKind
    prompts: Lengths
    answers: Lengths

    @staticmethod
    def read(offer: Offer) -> _Asked:
        """Return what is asked; refuse what no load can be."""
        given = {
            LoadKind.BATCH: offer.batch,
            LoadKind.CONCURRENCY: offer.concurrency,
            LoadKind.RATE: offer.requests_per_s,
        }
        stated = [kind for kind, value in given.items() if value is not None]
        if len(stated) > 1:
            raise UsageError(
                f"{' and '.join(stated)} are different loads",
                place="--batch, --concurrency, --rate",
                hint="give one of them, or none for the most that fits",
            )
        for option, value in (
            ("--batch", offer.batch),
            ("--concurrency", offer.concurrency),
            ("--requests", offer.num_requests),
        ):
            if value is not None and not 1 <= value <= _MOST_COUNT:
                raise UsageError(f"{value} is out of range", place=option, hint="a whole number, 1 or more")
        if offer.requests_per_s is not None and not 0 < offer.requests_per_s <= _MOST_COUNT:
            raise UsageError(f"{offer.requests_per_s:g} is out of range", place="--rate", hint="requests per second")
        if not 0 <= offer.think_time_s <= _MOST_TIME_S:
            raise UsageError(f"{offer.think_time_s:g} s is out of range", place="--think-time", hint="write 30s")
        if not 0 <= offer.prefix_hit_fraction < 1:
            raise UsageError(
                f"{offer.prefix_hit_fraction:g} is out of range", place="--prefix-hit", hint="from 0 to below 1"
            )
        return _Asked(
            kind=stated[0] if stated else LoadKind.MAXIMUM,
            prompts=_lengths(offer.input_tokens, _DEFAULT_INPUT, "--input-tokens"),
            answers=_lengths(offer.output_tokens, _DEFAULT_OUTPUT, "--output-tokens"),
        )

    def inputs(self, offer: Offer) -> tuple[Input, ...]:
        """Return the load for the answer's list."""

        def origin(value: object) -> str:
            return "default" if value is None else "given"

        found = [
            Input(name="input_tokens", value=described(self.prompts), origin=origin(offer.input_tokens)),
            Input(name="output_tokens", value=described(self.answers), origin=origin(offer.output_tokens)),
            Input(
                name="load", value=self.kind.value, origin="given" if self.kind is not LoadKind.MAXIMUM else "default"
            ),
        ]
        for name, value in (
            ("batch", offer.batch),
            ("concurrency", offer.concurrency),
            ("requests_per_s", offer.requests_per_s),
            ("num_requests", offer.num_requests),
            ("think_time_s", offer.think_time_s or None),
            ("prefix_hit_fraction", offer.prefix_hit_fraction or None),
        ):
            if value is not None:
                found.append(Input(name=name, value=value, origin="given"))
        return tuple(found)

    def requests(self, offer: Offer) -> Requests:
        """Return what every request asks."""
        prompt = mean_tokens(self.prompts)
        return Requests(
            prompt_tokens=prompt * (1 - offer.prefix_hit_fraction),
            cached_tokens=prompt * offer.prefix_hit_fraction,
            answers=answer_nodes(self.answers),
            varied=isinstance(self.prompts, Exponential | Lognormal),
        )


def _lengths(value: str | float | None, default: str, option: str) -> Lengths:
    try:
        return parse_lengths(default if value is None else str(value))
    except ValueError as wrong:
        raise UsageError(str(wrong), place=option, hint="a number of tokens or a distribution") from None


def _estimated(deployment: Deployment, form: KvFormat, offer: Offer, asked: _Asked, catalog: Catalog) -> EstimateResult:
    rules = deployment.rules
    steps = pace(rules.engine, rules.version, rules.generation).value
    room = room_for(deployment, form, asked.prompts, asked.answers)
    efficiency = catalog.efficiency(deployment.gpu)
    clock = clock_of(deployment, form, steps, efficiency)
    server = server_of(deployment, clock, steps, room)
    speed = _speed(server, offer, asked)
    named, basis = class_of(deployment, efficiency), basis_of(efficiency)

    def figure(quantity: str, value: float) -> Figure:
        low, high = band(named, quantity, value, at_rate=asked.kind is LoadKind.RATE)
        return Figure(value=value, low=low, high=high, basis=basis)

    warnings = []
    if room < 1:
        warnings.append(
            f"{deployment.model.name} on {deployment.gpu.name}: not one such request fits beside the weights"
        )
    if not speed.stable:
        warnings.append(
            f"unstable: {offer.requests_per_s:g} requests/s arrive, {speed.requests_per_s:.3g} can be answered; the "
            "queue grows for as long as the load lasts"
        )
    return EstimateResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        engine=rules.engine,
        engine_version=rules.version,
        kv_dtype=form.name,
        load=asked.kind,
        input_tokens=mean_tokens(asked.prompts),
        output_tokens=mean_tokens(asked.answers),
        ttft_s=figure("ttft_s", speed.ttft_s),
        tpot_s=figure("tpot_s", speed.tpot_s),
        e2e_s=figure("e2e_s", speed.e2e_s),
        output_tokens_per_s=figure("output_tokens_per_s", speed.output_tokens_per_s),
        output_tokens_per_s_per_user=_inverse(figure("tpot_s", speed.tpot_s)),
        requests_per_s=figure("output_tokens_per_s", speed.requests_per_s),
        queue_s=speed.queue_s,
        batch=speed.num_decodes,
        max_batch=math.floor(min(room, server.num_places)),
        stable=speed.stable,
        bound_by=speed.bound_by,
        warnings=tuple(warnings),
    )


def _speed(server: Server, offer: Offer, asked: _Asked) -> Speed:
    requests = asked.requests(offer)
    count = None if offer.num_requests is None else float(offer.num_requests)
    match asked.kind:
        case LoadKind.BATCH:
            return in_batch(server, requests, offer.batch or 1)
        case LoadKind.CONCURRENCY:
            clients = float(offer.concurrency or 1)
            return in_closed_loop(server, requests, clients, think_time_s=offer.think_time_s, num_requests=count)
        case LoadKind.RATE:
            return in_open_run(server, requests, offer.requests_per_s or 1.0, count)
        case LoadKind.MAXIMUM:
            if count is not None:
                return in_run(server, requests, num_requests=count)
            return in_closed_loop(server, requests, server.num_places)


def _inverse(figure: Figure) -> Figure:
    def per(value: float) -> float:
        return 1 / value if value > 0 else math.inf

    return Figure(value=per(figure.value), low=per(figure.high), high=per(figure.low), basis=figure.basis)


def _notes(deployment: Deployment, offer: Offer) -> list[str]:
    rules = deployment.rules
    step = pace(rules.engine, rules.version, rules.generation)
    found = [
        f"{rules.engine} {rules.version}: {step.value.order.value} scheduling, overheads as of {step.source}",
        "times are means over the requests; low to high is meant to hold eight of ten measurements",
    ]
    if offer.batch is None:
        found.append(
            f"front end: {step.value.request_s * 1e3:g} ms per request and {step.value.token_s * 1e6:g} us per "
            f"streamed token in one process, {step.value.latency_s * 1e3:g} ms on the way"
        )
    return found

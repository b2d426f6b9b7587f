"""From what a measurement states of its load to an offer, as ``estimate`` takes it, and as ``simulate`` does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.offer import Offer
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import UsageError
from infcalc.evidence.nouns import BenchmarkRun, Format, MetricsSnapshot, Quantity, StatedLoad
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

_MANY_LENGTHS = 2000
"""As many lengths as tell a distribution; of more, each so-many-th is taken."""
_SIMULATED = 1000
_WHOLE = 5e-4
"""What counting tokens anew makes of a length that was asked for: 127.992 of 128."""
_CONVERSATIONS = ("sharegpt", "conversation", "chat")


@frozen
class Loaded:
    """A load as it is predicted. ``offers`` are two where a rate is stated beside a cap: the slower of both holds."""

    offers: tuple[Offer, ...]
    workload: WorkloadAsk
    text: str
    assumptions: tuple[str, ...]
    front_end: bool = True
    """Whether what was measured has the front end in it."""
    single: bool = False
    """A test of llama-bench: one sequence, its prompt or its answer alone."""


def load_of_run(run: BenchmarkRun, given: Offer) -> Loaded:
    """Return the load of a benchmark; what ``given`` says counts.

    Raises:
        UsageError: neither file nor options say how requests came, or how long they are.

    """
    stated = run.load
    if run.form in {Format.LLAMA_BENCH, Format.LLAMA_BENCH_CSV, Format.LLAMA_BENCH_MARKDOWN}:
        return _single(stated)
    notes: list[str] = []
    inputs = _lengths(stated.inputs_tokens, stated.input_tokens, stated.dataset, given.input_tokens, notes)
    outputs = _lengths(stated.outputs_tokens, stated.output_tokens, stated.dataset, given.output_tokens, notes)
    _check(inputs, outputs, run.place)
    offers: tuple[Offer, ...]
    offline = run.form in {Format.VLLM_LATENCY, Format.VLLM_THROUGHPUT}
    shared: dict[str, Any] = {
        "input_tokens": inputs,
        "output_tokens": outputs,
        "prefix_hit_fraction": given.prefix_hit_fraction,
    }
    if given.batch is not None or given.concurrency is not None or given.requests_per_s is not None:
        offers = (replace(given, num_requests=given.num_requests or _finite(stated, given), **shared),)
    elif offline:
        batch = stated.batch or given.num_requests or stated.num_requests
        if batch is None:
            raise UsageError("the batch size is neither stated nor given", place=run.place, hint="add --batch 8")
        offers = (Offer(batch=batch, **shared),)
        if run.form is Format.VLLM_THROUGHPUT:
            notes.append("all requests are given to the engine at once, without a front end")
    else:
        offers = _paced(stated, given, run.place, shared, notes)
    return Loaded(
        offers=offers,
        workload=_workload(stated, offers[-1]),
        text=_text(offers),
        assumptions=tuple(notes),
        front_end=run.form is not Format.ENGINE_TRACE,
    )


def load_of_snapshot(snapshot: MetricsSnapshot, given: Offer) -> Loaded:
    """Return the load that metrics tell of: lengths of all requests so far, and how many are under way now.

    Raises:
        UsageError: neither metrics nor options say how many requests come, or how long they are.

    """
    lengths = [snapshot.figure(quantity, "mean") for quantity in (Quantity.INPUT_LENGTH, Quantity.OUTPUT_LENGTH)]
    stated = [None if one is None else one.value for one in lengths]
    notes: list[str] = []
    inputs = _lengths((), stated[0], "", given.input_tokens, notes)
    outputs = _lengths((), stated[1], "", given.output_tokens, notes)
    _check(inputs, outputs, snapshot.place)
    offer = replace(given, input_tokens=inputs, output_tokens=outputs)
    if offer.batch is offer.concurrency is offer.requests_per_s is None:
        under_way = [snapshot.figure(quantity, "now") for quantity in (Quantity.RUNNING, Quantity.WAITING)]
        number = round(sum(one.value for one in under_way if one is not None))
        if not number:
            raise UsageError(
                "no request is under way, so how many came is not told",
                place=snapshot.place,
                hint="add --concurrency or --rate, or save the metrics while the server is busy",
            )
        offer = replace(offer, concurrency=number)
        notes.append(f"{number} requests are running or wait now: as many are taken to be under way all the time")
    notes.append("times of metrics are of all requests since the engine started")
    return Loaded(
        offers=(offer,), workload=_workload(StatedLoad(), offer), text=_text((offer,)), assumptions=tuple(notes)
    )


def _single(stated: StatedLoad) -> Loaded:
    """Return the load of a test of llama-bench: a prompt alone, an answer alone, or one after the other."""
    prompt, answer, depth = stated.input_tokens, stated.output_tokens, stated.context_tokens or 0
    notes = []
    if prompt is None:
        prompt = float(max(depth, 1))
    elif depth:
        notes.append(f"{depth:,} tokens are in the cache before the prompt, as from a prefix cache")
    total = prompt + (depth if stated.input_tokens is not None else 0)
    offer = Offer(
        batch=1,
        input_tokens=total,
        output_tokens=answer or 1.0,
        prefix_hit_fraction=depth / total if stated.input_tokens is not None and depth else 0.0,
    )
    return Loaded(
        offers=(offer,), workload=_workload(stated, offer), text="one sequence", assumptions=tuple(notes), single=True
    )


def _lengths(
    listed: Sequence[float], mean: float | None, dataset: str, given: str | float | None, notes: list[str]
) -> str | float | None:
    if given is not None:
        return given
    if listed:
        chosen = sorted(listed)[:: max(1, len(listed) // _MANY_LENGTHS)]
        return "empirical:" + ",".join(f"{max(1.0, one):g}" for one in chosen)
    if mean is None:
        return None
    if any(word in dataset.lower() for word in _CONVERSATIONS):
        notes.append(f"lengths of {dataset} scatter: exponential about their means")
        return f"exponential:{max(1.0, mean):g}"
    if abs(mean - round(mean)) > _WHOLE * mean:
        notes.append(
            f"lengths scatter, for their mean {mean:,.6g} is no whole number: exponential about it, as of "
            "conversations (--input-tokens, --output-tokens)"
        )
        return f"exponential:{max(1.0, mean):g}"
    notes.append(
        "only means of lengths are stated: all requests are taken to be alike (--input-tokens, --output-tokens)"
    )
    return max(1.0, mean)


def _check(inputs: object, outputs: object, place: str) -> None:
    missing = [name for name, value in (("--input-tokens", inputs), ("--output-tokens", outputs)) if value is None]
    if missing:
        raise UsageError(
            "how long prompts or answers are is neither stated nor given",
            place=place,
            hint=f"add {' and '.join(missing)}",
        )


def _finite(stated: StatedLoad, given: Offer) -> int | None:
    return None if given.batch is not None else stated.num_requests


def _paced(stated: StatedLoad, given: Offer, place: str, shared: dict[str, Any], notes: list[str]) -> tuple[Offer, ...]:
    number = given.num_requests or stated.num_requests
    clients, rate = stated.num_clients, stated.requests_per_s
    if stated.burstiness is not None and rate is not None and stated.burstiness != 1:
        notes.append(f"burstiness {stated.burstiness:g} is taken as 1, Poisson; --simulate takes it as it is")
    if stated.dataset == "constant pace" and rate is not None:
        notes.append("requests at a constant pace are priced as Poisson ones; --simulate takes them as they come")
    if stated.trace and rate is not None:
        notes.append("requests of a trace are priced as Poisson ones of its mean rate")
    offers: list[Offer] = []
    if rate is not None:
        offers.append(Offer(requests_per_s=rate, num_requests=number, **shared))
    if clients is not None:
        offers.append(Offer(concurrency=clients, num_requests=number, **shared))
    if not offers and number is not None and (stated.unlimited or given.num_requests is not None):
        offers.append(Offer(num_requests=number, **shared))
    if not offers:
        raise UsageError(
            "neither rate, concurrency nor an endless rate is stated or given",
            place=place,
            hint="add --rate, --concurrency or --batch; --num-requests alone means that all came at once",
        )
    if len(offers) > 1:
        notes.append(f"at most {clients:,} requests are under way: the slower of rate and cap holds")
    return tuple(offers)


def _workload(stated: StatedLoad, offer: Offer) -> WorkloadAsk:
    """Return the load as a simulation takes it."""
    number = offer.num_requests or stated.num_requests or _SIMULATED
    rate, arrivals = offer.requests_per_s, None
    burstiness: float | None = None
    if rate is not None:
        if stated.dataset == "constant pace":
            arrivals, rate = f"constant:{rate:g}", None
        else:
            burstiness = stated.burstiness
    elif offer.concurrency is None:
        arrivals, number = "once", offer.batch or number
    return WorkloadAsk(
        arrivals=arrivals,
        requests_per_s=rate,
        burstiness=burstiness,
        num_clients=offer.concurrency,
        input_tokens=_written(offer.input_tokens),
        output_tokens=_written(offer.output_tokens),
        num_requests=number,
    )


def _written(value: str | float | None) -> str | None:
    return value if value is None or isinstance(value, str) else f"{value:.12g}"


def _text(offers: Sequence[Offer]) -> str:
    parts = []
    for offer in offers:
        if offer.requests_per_s is not None:
            parts.append(f"{offer.requests_per_s:g} requests/s")
        if offer.concurrency is not None:
            parts.append(f"{offer.concurrency:,} clients")
        if offer.batch is not None:
            parts.append(f"a batch of {offer.batch:,}")
    number = offers[0].num_requests
    if number is not None:
        parts.append(f"{number:,} requests" + ("" if parts else " at once"))
    return ", ".join(parts) or "maximum throughput"

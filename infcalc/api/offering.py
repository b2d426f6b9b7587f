"""What load is meant: lengths, their defaults, and numbers that no load can have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.offer import LoadKind, Offer
from infcalc.api.ranges import check_range
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input
from infcalc.workload.lengths import FORMS, Constant, Lengths, described, mean_tokens, parse_lengths

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment

_CONTEXT_TOKENS = 4096
"""Of the reference scenario: prompt and answer fill it, half each."""
MAX_BATCH = 2**20
_MAX_COUNT = 10**9
_MAX_PER_S = 1e6
_MAX_S = 1e9


@frozen
class Load:
    """An offer as it is understood for one deployment."""

    kind: LoadKind
    offer: Offer
    inputs: Lengths
    outputs: Lengths
    found: tuple[Input, ...]

    @property
    def prompt_tokens(self) -> float:
        """Mean of the prompts."""
        return mean_tokens(self.inputs)

    @property
    def answer_tokens(self) -> float:
        """Mean of the answers."""
        return mean_tokens(self.outputs)

    @property
    def total_tokens(self) -> int:
        """Prompt and answer together, on average."""
        return max(2, math.ceil(self.prompt_tokens + self.answer_tokens - 1e-6))

    @property
    def alike(self) -> bool:
        """Whether every request has the same lengths."""
        return isinstance(self.inputs, Constant) and isinstance(self.outputs, Constant)


def check_offer(offer: Offer) -> None:
    """Refuse numbers that no load can have, and loads that exclude each other.

    Raises:
        UsageError: one is out of range, or two are given.

    """
    given = [
        name
        for name, value in (
            ("--batch", offer.batch),
            (offer.clients_option, offer.concurrency),
            ("--rate", offer.requests_per_s),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError(
            f"both {' and '.join(given)}",
            place=given[1],
            hint="give one: --batch starts together, --concurrency keeps so many under way, --rate sends at random",
        )
    counts = (
        ("--batch", offer.batch, MAX_BATCH),
        (offer.clients_option, offer.concurrency, MAX_BATCH),
        ("--num-requests", offer.num_requests, _MAX_COUNT),
    )
    for option, count, most in counts:
        check_range(option, count, most=most)
    rate = offer.requests_per_s
    if rate is not None and not 0 < rate <= _MAX_PER_S:
        raise UsageError(
            f"{rate:g} requests per second is out of range",
            place="--rate",
            hint=f"a number above 0, up to {_MAX_PER_S:,.0f}",
        )
    if not 0 <= offer.think_time_s <= _MAX_S:
        raise UsageError(f"{offer.think_time_s:g} seconds", place="--think-time", hint="write 30s or 500ms")
    if not 0 <= offer.prefix_hit_fraction < 1:
        raise UsageError(
            f"{offer.prefix_hit_fraction:g} is out of range",
            place="--prefix-hit",
            hint="a fraction from 0 to below 1, such as 0.8: engines compute at least the last token of a prompt",
        )
    if offer.think_time_s and offer.concurrency is None:
        raise UsageError("a think time without users", place="--think-time", hint="add --users 200")
    if offer.num_requests is not None and offer.batch is not None:
        raise UsageError(
            "a batch is one run of its own", place="--num-requests", hint="use --concurrency for a run in waves"
        )
    if offer.num_requests is not None and offer.think_time_s:
        raise UsageError("a finite run of users who think", place="--num-requests", hint="leave one of the two out")


def load_for(deployment: Deployment, offer: Offer, contexts: tuple[int, ...]) -> Load:
    """Return the load of an offer for a deployment: what is not said fills the context, half prompt, half answer.

    Raises:
        UsageError: a length that is none, or longer than the model and the server admit.

    """
    limit = limit_of(deployment)
    if len(contexts) > 1:
        raise UsageError(
            f"{len(contexts)} contexts", place="--context", hint="give one, or --sweep input-tokens=1k..64k"
        )
    if contexts and offer.input_tokens is not None and offer.output_tokens is not None:
        raise UsageError(
            "--context beside both lengths", place="--context", hint="the context is prompt and answer together"
        )
    whole = float(contexts[0]) if contexts else min(_CONTEXT_TOKENS, limit)
    inputs = read_lengths(offer.input_tokens, "--input-tokens")
    outputs = read_lengths(offer.output_tokens, "--output-tokens")
    rest = whole if contexts else limit
    said = "--context" if contexts else "reference scenario"
    half = max(1.0, float(int(whole / 2)))
    defaults = []
    if inputs is None:
        left = whole - half if outputs is None else rest - mean_tokens(outputs)
        length = left if contexts else min(half, left)
        inputs = Constant(value_tokens=max(1.0, float(int(length))))
        defaults.append("input_tokens")
    if outputs is None:
        left = rest - mean_tokens(inputs)
        length = left if contexts else min(half, left)
        outputs = Constant(value_tokens=max(1.0, float(int(length))))
        defaults.append("output_tokens")
    kind = LoadKind.MAXIMUM
    if offer.batch is not None:
        kind = LoadKind.BATCH
    elif offer.concurrency is not None:
        kind = LoadKind.CONCURRENCY
    elif offer.requests_per_s is not None:
        kind = LoadKind.RATE
    load = Load(
        kind=kind,
        offer=offer,
        inputs=inputs,
        outputs=outputs,
        found=_inputs(offer, inputs, outputs, dict.fromkeys(defaults, said)),
    )
    _check_length(deployment, load, limit)
    return load


def limit_of(deployment: Deployment) -> int:
    """Return the longest sequence that model and server admit."""
    own = deployment.model.max_context_tokens
    return deployment.max_model_len if own is None else min(own, deployment.max_model_len)


def _check_length(deployment: Deployment, load: Load, limit: int) -> None:
    total = load.prompt_tokens + load.answer_tokens
    if total <= limit:
        return
    own = deployment.model.max_context_tokens
    by = f"--max-model-len admits {limit:,}"
    if own is not None and own <= deployment.max_model_len:
        by = f"{deployment.model.name} was made for {own:,}"
    raise UsageError(
        f"{load.prompt_tokens:,.0f} + {load.answer_tokens:,.0f} tokens of a request: {by}",
        place="--input-tokens",
        hint=f"at most {limit:,} together; a config.json with RoPE scaling given as --model may admit more",
    )


def read_lengths(value: str | float | None, option: str) -> Lengths | None:
    """Return the distribution that an option gives; None where it was not given.

    Raises:
        UsageError: it is none.

    """
    if value is None:
        return None
    try:
        return parse_lengths(f"{value:.12g}" if isinstance(value, float) else str(value))
    except ValueError as wrong:
        raise UsageError(str(wrong), place=option, hint=f"write {FORMS}") from None


def _inputs(offer: Offer, inputs: Lengths, outputs: Lengths, defaults: dict[str, str]) -> tuple[Input, ...]:
    given = "given"
    found = [
        Input(name=name, value=described(lengths), origin=defaults.get(name, given))
        for name, lengths in (("input_tokens", inputs), ("output_tokens", outputs))
    ]
    # Under the option's name, as it is written.
    for name, value in (
        ("batch", offer.batch),
        ("users" if offer.think_time_s else "concurrency", offer.concurrency),
        ("rate_per_s", offer.requests_per_s),
        ("num_requests", offer.num_requests),
        ("think_time_s", offer.think_time_s or None),
        ("prefix_hit_fraction", offer.prefix_hit_fraction or None),
    ):
        if value is not None:
            found.append(Input(name=name, value=value, origin=given))
    if offer.batch is offer.concurrency is offer.requests_per_s is None:
        found.append(Input(name="load", value="maximum throughput", origin="default"))
    return tuple(found)

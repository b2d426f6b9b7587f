"""What a user may say of a stream with shared prefixes, checked and made into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.offering import read_lengths
from infcalc.api.ranges import check_ranges
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.workload.lengths import mean_tokens, quantile_tokens
from infcalc.workload.shared_prefixes import SharedStream

if TYPE_CHECKING:
    import numpy as np

    from infcalc.kvcache.prefix_index import IndexKind, Policy

_MOST_REQUESTS, _MOST_LENGTH, _MOST_SIZE = 100_000, 10**7, 10**9
_MOST_STREAM_TOKENS = 10_000_000
_MOST_PER_S = 1e6
MOST_SEED = 2**63 - 1


@frozen
class PrefixAsk:
    """What a user may say of stream and cache; None: the default of its kind.

    ``input_tokens`` are those of a request's own part after the prefix, ``output_tokens`` those of its answer, which
    the cache keeps too: numbers or distributions.
    """

    num_requests: int = 1000
    num_prefixes: int = 5
    sharing_fraction: float = 0.6
    prefix_tokens: int = 1000
    input_tokens: str | int | float = 250
    output_tokens: str | int | float = 200
    index: IndexKind | None = None
    policy: Policy | None = None
    page_tokens: int | None = None
    max_entries: int | None = None
    max_tokens: int | None = None
    requests_per_s: float = 1.0
    seed: int = 0


def check_prefix_ask(wanted: PrefixAsk) -> None:
    """Refuse numbers that no stream and no cache can have.

    Raises:
        UsageError: one is out of range.

    """
    counts = (
        ("--requests", wanted.num_requests, 1, _MOST_REQUESTS),
        ("--prefixes", wanted.num_prefixes, 1, _MOST_REQUESTS),
        ("--prefix-tokens", wanted.prefix_tokens, 1, _MOST_LENGTH),
        ("--page-size", wanted.page_tokens, 1, _MOST_LENGTH),
        ("--max-entries", wanted.max_entries, 1, _MOST_SIZE),
        ("--max-tokens", wanted.max_tokens, 1, _MOST_SIZE),
        ("--seed", wanted.seed, 0, MOST_SEED),
    )
    check_ranges(counts)
    if not 0 <= wanted.sharing_fraction <= 1:
        raise UsageError(
            f"{wanted.sharing_fraction:g} is out of range", place="--sharing", hint="a fraction of the requests: 0.6"
        )
    if not 0 < wanted.requests_per_s <= _MOST_PER_S:
        raise UsageError(
            f"{wanted.requests_per_s:g} requests per second",
            place="--rate",
            hint=f"above 0 and at most {_MOST_PER_S:,.0f}",
        )


def stream_of(wanted: PrefixAsk, rng: np.random.Generator) -> SharedStream:
    """Return the stream: exactly the asked share of requests shares.

    Raises:
        UsageError: a length that is none, or a stream that is too long to be replayed.

    """
    own = read_lengths(wanted.input_tokens, "--input-tokens")
    answers = read_lengths(wanted.output_tokens, "--output-tokens")
    if own is None or answers is None:
        raise UsageError("a length that is none", place="--input-tokens", hint="leave it out to get the default")
    each = wanted.prefix_tokens + mean_tokens(own) + mean_tokens(answers)
    tokens = wanted.num_requests * each + wanted.num_prefixes * wanted.prefix_tokens
    if tokens > _MOST_STREAM_TOKENS:
        most = int(wanted.num_requests * _MOST_STREAM_TOKENS / tokens)
        raise UsageError(
            f"{wanted.num_requests:,} requests and {wanted.num_prefixes:,} prefixes are {tokens:,.0f} tokens: more "
            f"than {_MOST_STREAM_TOKENS:,} take too long",
            place="--requests",
            hint=f"--requests {most}, or shorter ones" if most else "shorter requests",
        )
    drawn = [
        tuple(
            max(1, round(quantile_tokens(lengths, share))) for lengths, share in zip((own, answers), row, strict=True)
        )
        for row in rng.random((wanted.num_requests, 2)).tolist()
    ]
    return SharedStream(
        num_sharing=round(wanted.sharing_fraction * wanted.num_requests),
        num_prefixes=wanted.num_prefixes,
        prefix_tokens=wanted.prefix_tokens,
        own_tokens=tuple(prompt for prompt, _ in drawn),
        answer_tokens=tuple(answer for _, answer in drawn),
    )

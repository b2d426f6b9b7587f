"""How the work of one kind of op grows with what a step holds: one formula each, for numbers and for numpy arrays.

A step is boiled down to its :class:`Load`: tokens, sequences, sampled positions, and the sequences of each phase. A
*law* holds what does not depend on it (shapes, widths, masks) and turns a load into :class:`Work`. A load may hold
whole numbers, fractions (means of many steps) or arrays of them; the arithmetic is the same, and whole numbers stay
exact. Sums are over all layers that the law stands for, on one rank.

Loads, work and what comes of them are named tuples: the clock makes hundreds of thousands of them per second.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    Amount: TypeAlias = float | NDArray[np.floating[Any]]
    """A number, or one number for each of many steps."""


class Sequences(NamedTuple):
    """Sequences of one phase that are alike: each computes ``new_tokens`` after ``cached_tokens``."""

    num_sequences: Amount
    new_tokens: Amount
    cached_tokens: Amount


class Load(NamedTuple):
    """What a step holds, as far as work depends on it. ``routed_tokens`` are those of all attention-DP ranks."""

    prefills: tuple[Sequences, ...]
    decodes: tuple[Sequences, ...]
    num_tokens: Amount
    num_sequences: Amount
    num_sampled: Amount
    routed_tokens: Amount
    expanded_tokens: Amount
    """Tokens of the step and cached tokens of its prefills: what a latent cache is expanded for."""


class Work(NamedTuple):
    """What one op does. ``tokens`` are what fills the GPU in each of its kernels, 0 where it has nothing to do.

    For a multiplication they are its rows, for routed experts those of each expert that is touched, for prefill
    attention the new tokens of each sequence (their mean), for decode attention sequences times KV heads.
    """

    tokens: Amount
    flop: Amount = 0
    weight_bytes: Amount = 0
    activation_bytes: Amount = 0
    kv_read_bytes: Amount = 0
    kv_write_bytes: Amount = 0
    message_bytes: Amount = 0
    """Of each message, not of all layers together."""


class Driver(StrEnum):
    """What an op works on, by its name in :class:`Load`."""

    TOKENS = "num_tokens"
    SAMPLED = "num_sampled"
    ROUTED = "routed_tokens"
    EXPANDED = "expanded_tokens"


# --- masks ---


def attended_pairs(new_tokens: Amount, cached_tokens: Amount, window_tokens: int | None = None) -> Amount:
    """Return the (query, key) pairs of causal attention: each new token sees what came before it, and itself.

    Without a window: n c + n (n + 1) / 2. With one, a query sees at most ``window_tokens`` keys, itself included.

    >>> attended_pairs(4096, 0), attended_pairs(1, 4096), attended_pairs(4, 10, 8)
    (8390656, 4097, 32)
    """
    if window_tokens is None:
        return new_tokens * cached_tokens + _triangle(new_tokens)
    end = cached_tokens + new_tokens
    growing_end, growing_start = _lesser(end, window_tokens), _lesser(cached_tokens, window_tokens)
    saturated = (end - growing_end) - (cached_tokens - growing_start)
    return _triangle(growing_end) - _triangle(growing_start) + saturated * window_tokens


def chunked_pairs(new_tokens: Amount, cached_tokens: Amount, chunk_tokens: int) -> Amount:
    """Return the (query, key) pairs when a query sees only the tokens of its own chunk up to itself.

    >>> chunked_pairs(8, 0, 4), chunked_pairs(1, 4, 4)
    (20, 1)
    """

    def until(position: Amount) -> Amount:
        chunks, rest = position // chunk_tokens, position % chunk_tokens
        return chunks * _triangle(chunk_tokens) + _triangle(rest)

    return until(cached_tokens + new_tokens) - until(cached_tokens)


def pooled_pairs(new_tokens: Amount, cached_tokens: Amount, pool_tokens: int, limit: int | None = None) -> Amount:
    """Return the (query, entry) pairs when ``pool_tokens`` tokens make one entry and a query sees whole ones only.

    At most ``limit`` entries per query.

    >>> pooled_pairs(8, 0, 4), pooled_pairs(8, 0, 4, 1), pooled_pairs(100, 900, 1) == attended_pairs(100, 900)
    (6, 5, True)
    """

    def until(position: Amount) -> Amount:
        whole = position if limit is None else _lesser(position, limit * pool_tokens)
        quotient, rest = whole // pool_tokens, whole % pool_tokens
        saturated = 0 if limit is None else (position - whole) * limit
        return pool_tokens * _triangle(quotient - 1) + quotient * (rest + 1) + saturated

    return until(cached_tokens + new_tokens) - until(cached_tokens)


class Seen(NamedTuple):
    """What attention of one sequence touches: (query, key) pairs, and the cached tokens (entries) it reads."""

    pairs: Amount
    read: Amount


@frozen
class Causal:
    """Every query sees all tokens before it, or the last ``window_tokens``, itself among them."""

    window_tokens: int | None = None

    def seen(self, new: Amount, cached: Amount) -> Seen:
        """Return the pairs and the cached tokens read."""
        window = self.window_tokens
        read = cached if window is None else _lesser(cached, window - 1)
        return Seen(attended_pairs(new, cached, window), read)


@frozen
class Chunked:
    """A query sees the tokens of its own chunk of ``chunk_tokens`` up to itself."""

    chunk_tokens: int

    def seen(self, new: Amount, cached: Amount) -> Seen:
        """Return the pairs and the cached tokens read."""
        return Seen(chunked_pairs(new, cached, self.chunk_tokens), cached % self.chunk_tokens)


@frozen
class Selected:
    """A query sees ``topk_tokens`` tokens, itself among them; ``gathers`` tells whether only those are read."""

    topk_tokens: int
    gathers: bool

    def seen(self, new: Amount, cached: Amount) -> Seen:
        """Return the pairs and the cached tokens read."""
        read = _lesser(cached, (self.topk_tokens - 1) * new) if self.gathers else cached
        return Seen(attended_pairs(new, cached, self.topk_tokens), read)


@frozen
class Pooled:
    """A query sees whole entries of ``pool_tokens`` tokens each."""

    pool_tokens: int

    def seen(self, new: Amount, cached: Amount) -> Seen:
        """Return the pairs and the entries read."""
        return Seen(pooled_pairs(new, cached, self.pool_tokens), cached // self.pool_tokens)


@frozen
class Compressed:
    """A query sees its window and entries of ``pool_tokens`` tokens: at most ``num_selected``, where that is set."""

    window_tokens: int
    pool_tokens: int
    num_selected: int | None
    gathers: bool
    """Only the entries that were selected are read."""

    def seen(self, new: Amount, cached: Amount) -> Seen:
        """Return the pairs and the entries read."""
        pairs = attended_pairs(new, cached, self.window_tokens)
        read = _lesser(cached, self.window_tokens - 1)
        if self.pool_tokens:
            pairs = pairs + pooled_pairs(new, cached, self.pool_tokens, self.num_selected)
            entries = cached // self.pool_tokens
            limit = self.num_selected if self.gathers else None
            read = read + (entries if limit is None else _lesser(entries, limit * new))
        return Seen(pairs, read)


Mask: TypeAlias = Causal | Chunked | Selected | Pooled | Compressed


# --- laws ---


def experts_touched(num_local: float, num_experts: int, experts_per_token: int, num_tokens: Amount) -> Amount:
    """Return how many of a rank's ``num_local`` experts at least one of ``num_tokens`` tokens is expected to need.

    E_local * (1 - (1 - k / E)**T), for routing that is even over all E experts; T counts the tokens of all ranks that
    share the experts. It is exact at one token and saturates at E_local.

    >>> [round(experts_touched(8, 8, 2, batch), 2) for batch in (1, 2, 4, 16)]
    [2.0, 3.5, 5.47, 7.92]
    >>> [round(experts_touched(16, 128, 8, tokens), 2) for tokens in (1, 8, 32)]
    [1.0, 6.45, 13.97]
    """
    return num_local * (1 - (1 - experts_per_token / num_experts) ** num_tokens)


def experts_touched_unevenly(num_local: float, num_experts: int, experts_per_token: int, num_tokens: Amount) -> Amount:
    """Return what :func:`experts_touched` does for routing that favours some experts: E_local * T m / (1 + (T - 1) m).

    m = k / E. It is the mean where the popularity of experts is exponential (as much spread as mean): exact at one
    token, and the same to second order in m. Loads drawn from the power laws that were observed with DeepSeek-R1 and
    Qwen3-235B (exponents 1.01 and 1.2, AIConfigurator's collector) touch within a tenth as many from 64 tokens on.

    >>> [round(experts_touched_unevenly(128, 128, 4, tokens), 1) for tokens in (1, 16, 64, 256)]
    [4.0, 43.6, 86.2, 114.2]
    """
    share = experts_per_token / num_experts
    return num_local * num_tokens * share / (1 + share * (num_tokens - 1) * (num_tokens > 0))


FEW_EXPERTS: Final = 16
"""Up to so many experts are met about equally often: Mixtral's routing analysis (arXiv 2401.04088, section 5) finds
each of its 8 near 1/8 of the tokens of every domain. Loads of models with 128 and 256 experts follow power laws."""


def fullest_factor(num_groups: int, num_local: int, num_assignments: Amount, *, uneven: bool) -> Amount:
    """Return how many times the mean the fullest of ``num_groups`` ranks gets, of ``num_assignments`` on average.

    The share of a rank spreads by chance (variance over squared mean: 1 / assignments) and, where routing is
    ``uneven``, by the popularity of its experts (1 / experts, if that is exponential). The largest of g normal shares
    is expected at the normal quantile of (g - 0.375) / (g + 0.25) (Blom 1958). AIConfigurator's tables, which time the
    fullest rank, have 1.3, 1.4 and 1.6 with 4, 8 and 16 ranks of 128 experts at 16,384 tokens.

    >>> [round(fullest_factor(groups, 128 // groups, 1e9, uneven=True), 2) for groups in (1, 4, 8, 16)]
    [1.0, 1.16, 1.34, 1.61]
    """
    if num_groups == 1:
        return 1.0
    beyond = _QUANTILES.get(num_groups) or _largest_of(num_groups)
    spread = (1 / num_local if uneven else 0.0) + 1 / (num_assignments + _TINY)
    return _lesser(1 + beyond * ((1 - 1 / num_groups) * spread) ** 0.5, float(num_groups))


def _largest_of(num_groups: int) -> float:
    from statistics import NormalDist  # noqa: PLC0415 - slow to import, and few deployments need it

    found = _QUANTILES[num_groups] = NormalDist().inv_cdf((num_groups - 0.375) / (num_groups + 0.25))
    return found


_QUANTILES: dict[int, float] = {}


@frozen
class Routed:
    """Weights of a rank's experts: those are read that a token meets."""

    num_local: int
    num_experts: int
    experts_per_token: int
    expert_bytes: float
    """Of one expert in all layers."""
    uneven: bool = False
    """Some experts are favoured."""

    def touched(self, load: Load) -> Amount:
        """Return how many of the rank's experts the step meets."""
        law = experts_touched_unevenly if self.uneven else experts_touched
        return law(self.num_local, self.num_experts, self.experts_per_token, load.routed_tokens)


@frozen
class Linear:
    """Work that grows by the same amount with each item, beside weights that are read once whatever their number."""

    driver: Driver = Driver.TOKENS
    item_flop: float = 0
    item_weight_bytes: float = 0
    item_activation_bytes: float = 0
    item_message_bytes: float = 0
    weight_bytes: float = 0
    sequence_state_bytes: float = 0
    """Read and written once for each sequence."""
    routed: Routed | None = None
    """Vectors of experts (biases)."""

    def work(self, load: Load) -> Work:
        """Return what is done in a step of ``load``."""
        items: Amount = getattr(load, self.driver)
        weight_bytes: Amount = self.weight_bytes
        if self.item_weight_bytes:
            weight_bytes = weight_bytes + self.item_weight_bytes * items
        if self.routed is not None:
            weight_bytes = weight_bytes + self.routed.expert_bytes * self.routed.touched(load)
        state_bytes = self.sequence_state_bytes * load.num_sequences if self.sequence_state_bytes else 0
        return Work(
            items,
            self.item_flop * items,
            weight_bytes,
            self.item_activation_bytes * items,
            state_bytes,
            state_bytes,
            self.item_message_bytes * items,
        )


@frozen
class Experts:
    """Routed experts: each rank reads those that tokens of any rank meet, and multiplies what was sent to them."""

    routed: Routed
    num_groups: int
    """Groups of ranks that the assignments are spread over (expert parallelism)."""
    assignment_flop: float
    assignment_activation_bytes: float

    @property
    def as_routed(self) -> Experts:
        """The same for the routing of real models: uneven where there are many experts."""
        routed = self.routed
        return replace(self, routed=replace(routed, uneven=routed.num_experts > FEW_EXPERTS))

    def fullest(self, load: Load) -> Load:
        """Return a load that gives every rank what ``load`` gives the fullest."""
        if self.num_groups == 1:
            return load
        routed = self.routed
        factor = fullest_factor(
            self.num_groups,
            routed.num_local,
            load.routed_tokens * routed.experts_per_token / self.num_groups,
            uneven=routed.uneven,
        )
        return load._replace(routed_tokens=load.routed_tokens * factor)

    def work(self, load: Load) -> Work:
        """Return what is done in a step of ``load``."""
        assignments = load.routed_tokens * self.routed.experts_per_token / self.num_groups
        touched = self.routed.touched(load)
        return Work(
            assignments / (touched + _TINY),
            self.assignment_flop * assignments,
            self.routed.expert_bytes * touched,
            self.assignment_activation_bytes * assignments,
        )


class Phases(StrEnum):
    """Whose sequences attention works on."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


@frozen
class Attention:
    """Attention under a mask: FLOP by pairs, cache by entries, activations by new tokens."""

    phases: Phases
    mask: Mask
    pair_flop: float
    entry_read_bytes: float
    entry_write_bytes: float
    """Of one new token; an entry that several tokens share counts in parts."""
    token_activation_bytes: float
    sequence_blocks: int = 0
    """KV heads that a kernel works on side by side for each sequence; 0 where new tokens fill it."""
    reads_new: bool = False
    """New tokens are found in the cache too: that of another layer, which has written them."""
    expanded_bytes: float = 0
    """Keys and values made from each latent, cached or new."""
    score_bytes: float = 0
    """Of each query and key, where scores go through memory."""

    def work(self, load: Load) -> Work:
        """Return what is done in a step of ``load``."""
        every = self._sequences(load)
        if not every:
            return _NOTHING
        sequences: Amount = 0
        tokens: Amount = 0
        flop: Amount = 0
        read_bytes: Amount = 0
        moved_bytes: Amount = 0
        for number, new, cached in every:
            mine = number * new
            sequences = sequences + number
            seen = self.mask.seen(new, cached)
            tokens = tokens + mine
            flop = flop + number * seen.pairs * self.pair_flop
            read = seen.read + new if self.reads_new else seen.read
            read_bytes = read_bytes + number * read * self.entry_read_bytes
            if self.expanded_bytes:
                moved_bytes = moved_bytes + number * (new + cached) * self.expanded_bytes
            if self.score_bytes:
                moved_bytes = moved_bytes + mine * (seen.read + new) * self.score_bytes
        return Work(
            sequences * self.sequence_blocks if self.sequence_blocks else tokens / (sequences + _TINY),
            flop,
            0,
            moved_bytes + tokens * self.token_activation_bytes,
            read_bytes,
            tokens * self.entry_write_bytes,
        )

    def _sequences(self, load: Load) -> tuple[Sequences, ...]:
        match self.phases:
            case Phases.PREFILL:
                return load.prefills
            case Phases.DECODE:
                return load.decodes
            case Phases.BOTH:
                return (*load.prefills, *load.decodes)


Law: TypeAlias = Linear | Experts | Attention

_NOTHING = Work(0)
_TINY = 1e-300
"""Added to divisors that are 0 in a step without tokens, where what is divided is 0 too."""


def _lesser(value: Amount, limit: Amount) -> Amount:
    if isinstance(value, (int, float)) and isinstance(limit, (int, float)):
        return min(value, limit)
    import numpy as np  # noqa: PLC0415 - whoever hands in arrays has loaded it

    return np.minimum(value, limit)


def _triangle(number: Amount) -> Amount:
    if isinstance(number, int):
        return number * (number + 1) // 2
    # Between whole numbers it is the mean of both: fractions are means of many steps.
    whole = number // 1
    return (whole + 1) * (number - whole / 2)

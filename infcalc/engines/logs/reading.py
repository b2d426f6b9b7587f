"""What a start-up log says, whichever engine wrote it: settings, figures, refusals, each with its line."""

from __future__ import annotations

from enum import StrEnum

from infcalc.frozen import frozen


class Quantity(StrEnum):
    """A figure an engine prints, by the key it has in answers. Bytes are of one rank, as the engine means them."""

    DEVICE_TOTAL = "device_total_bytes"
    FREE_AT_START = "free_at_start_bytes"
    USABLE = "usable_bytes"
    FREE_BEFORE_WEIGHTS = "free_before_weights_bytes"
    FREE_AFTER_WEIGHTS = "free_after_weights_bytes"
    WEIGHTS = "weights_bytes"
    CONSUMED = "weights_and_non_torch_bytes"
    NON_TORCH = "non_torch_bytes"
    ACTIVATION = "activation_bytes"
    PEAK = "peak_bytes"
    GRAPH_ESTIMATE = "cuda_graph_estimate_bytes"
    GRAPHS = "cuda_graph_bytes"
    COMPUTE = "compute_buffer_bytes"
    FREE_FOR_KV = "free_for_kv_bytes"
    TEMPORARY_KV = "temporary_kv_bytes"
    KEYS = "key_cache_bytes"
    VALUES = "value_cache_bytes"
    STATE = "state_bytes"
    POOL = "kv_pool_bytes"
    BLOCK_TOKENS = "block_tokens"
    BLOCKS = "kv_blocks"
    BYTES_PER_TOKEN = "kv_bytes_per_token"  # noqa: S105 - tokens of text
    TOKENS = "kv_cache_tokens"
    CONCURRENCY = "max_concurrency"


class FailureKind(StrEnum):
    """Why an engine says that it will not start."""

    ONE_REQUEST = "one request of the maximum length does not fit"
    FREE_MEMORY = "less memory is free than the fraction asks for"
    NO_ROOM = "no memory is left for KV"
    OUT_OF_MEMORY = "the device ran out of memory"
    STATES = "more sequences are allowed than the recurrent layers have blocks for"


@frozen
class Figure:
    """One printed number in its base unit. ``half_step`` is how far its printed digits may be from the truth."""

    quantity: Quantity
    value: float
    half_step: float
    line: int
    rank: str
    """``TP0``, ``pid 123``, ``CUDA0``; empty where the line names none."""


@frozen
class Setting:
    """One setting the log states, by infcalc's name for it, as text, whole number, real number or truth value."""

    name: str
    value: str | int | float | bool
    line: int


@frozen
class Failure:
    """A refusal to start, with what its text states (None where it does not)."""

    kind: FailureKind
    line: int
    text: str
    max_model_len: int | None = None
    estimated_tokens: int | None = None
    """The longest sequence the engine itself thinks would fit."""
    needed_bytes: float | None = None
    available_bytes: float | None = None
    total_bytes: float | None = None
    memory_fraction: float | None = None
    max_num_seqs: int | None = None
    num_blocks: int | None = None
    """Blocks of the pool, where the refusal counts them."""
    num_dummy_requests: int | None = None
    """How many requests the engine was warming up with."""


@frozen
class EngineLog:
    """The last start that a log holds."""

    engine: str
    version: str | None
    settings: tuple[Setting, ...]
    """Each name once: the most trustworthy line of those that state it."""
    figures: tuple[Figure, ...]
    """Each quantity once per rank."""
    failures: tuple[Failure, ...]
    gpu_names: tuple[str, ...]
    """Device names that lines give as such, as the driver spells them."""
    gpu_mentions: tuple[str, ...]
    """What else looks like the name of one."""
    notes: tuple[str, ...]
    num_lines: int
    starts: int
    """How many starts the log holds."""
    left_out: tuple[str, ...] = ()
    """What else the log holds, and why it is not read: other engines, earlier starts."""
    compared_rank: str | None = None
    """The rank whose figures are taken, where another than that of the least room says more."""

    def setting(self, name: str) -> Setting | None:
        """Return the setting called ``name``, or None."""
        return next((one for one in self.settings if one.name == name), None)

    def of(self, quantity: Quantity) -> tuple[Figure, ...]:
        """Return the figures of one quantity, one per rank, in the order of the log."""
        return tuple(figure for figure in self.figures if figure.quantity is quantity)

    def governing_rank(self) -> str:
        """Return the rank with the least room for KV, which decides how many blocks every rank of its stage has."""
        if self.compared_rank is not None:
            return self.compared_rank
        # Pools whose size all ranks agree on do not tell whose room was least.
        pools = self.of(Quantity.FREE_AFTER_WEIGHTS) or self.of(Quantity.POOL)
        return min(pools, key=lambda figure: figure.value).rank if pools else ""

    def figure(self, quantity: Quantity) -> Figure | None:
        """Return the figure of the governing rank; where it printed none, an unranked one, else the first."""
        found = self.of(quantity)
        rank = self.governing_rank()
        for figure in found:
            if figure.rank == rank:
                return figure
        return next((figure for figure in found if not figure.rank), found[0] if found else None)

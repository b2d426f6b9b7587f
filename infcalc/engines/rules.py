"""What an engine does by default and what its memory fraction means, for one version."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen
from infcalc.units import GIB, MIB

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu

T = TypeVar("T")


class FractionBase(StrEnum):
    """What the engine's memory fraction is a fraction of."""

    TOTAL = "of the CUDA total; holds weights, activation, buffers and KV"
    FREE_BEFORE_WEIGHTS = "of the memory free before weights load; holds weights and KV, activation lives outside"
    FREE_AFTER_WEIGHTS = "of the memory left after weights and activation peak; holds KV only"
    NONE = "not used: KV is allocated for the asked context"


@frozen
class Since(Generic[T]):
    """A value that holds from ``version`` on, until a later entry."""

    version: tuple[int, ...]
    value: T
    source: str


@frozen
class Band:
    """A modelled number of bytes, the range that measurements span, and where both come from."""

    value_bytes: int
    low_bytes: int
    high_bytes: int
    source: str
    high_source: str = ""
    """What the high end comes from, where that is another thing than the number itself."""


@frozen
class Served:
    """What the rules of an engine ask of a model: kinds, never names."""

    multimodal: bool = False
    """Its vision or audio towers are served."""
    latent: bool = False
    """Some of its layers cache latents (MLA)."""
    compressed: bool = False
    """Some of its layers cache compressed entries (DeepSeek V4)."""
    experts: bool = False
    """Some of its layers have experts: attention-DP ranks then exchange tokens, instead of being engines apart."""


PLAIN = Served()


@frozen
class SchedulerDefaults:
    """Caps an engine sets when the user does not: sequences running at once, and tokens per step."""

    max_num_seqs: int
    max_num_batched_tokens: int


class TokenLine(StrEnum):
    """What an engine prints as its number of cached tokens."""

    BLOCKS = "blocks x tokens per block"
    GROUPS = "blocks // groups x tokens of the smallest block: understates hybrid models"
    CONCURRENCY = "concurrency x longest sequence: rises with it on the same pool, not a capacity"
    POOL = "pool // bytes per token"
    CONTEXT = "the asked context: cells are allocated for it"


class Allocator(StrEnum):
    """How an engine lays sequences out in its pool."""

    UNIFORM = "every layer keeps every token"
    PAGE_GROUPS = "layers of one kind form groups of equal size that share pages of one size"
    TWO_POOLS = "windowed layers have a pool of their own"
    CELLS = "cells for the asked context, windows padded"


@frozen
class ProfileRules:
    """What the engine's profiling run (or its build limits) occupies, in copies of the tensors it holds at its peak.

    The peak is the larger of three moments. Forward: ``T * (inner widths + copies * hidden) * 2`` bytes for T tokens,
    with further copies where an all-reduce does not work in place and where a model carries several residual streams.
    Sampler: ``sampler_logit_copies * S * vocabulary * 4 + sampler_hidden_copies * T * hidden * 2`` for S sequences.
    Encoder: the largest picture of a multimodal model. ``low_fraction`` and ``high_fraction`` span the band.
    """

    hidden_copies: float
    moe_hidden_copies: float
    reduced_hidden_copies: float
    stream_copies: float
    sampler_hidden_copies: float
    sampler_on_first_rank: bool = False
    """Only the first rank samples: others have its memory left."""
    split_gemm_copies: float = 1.0
    """Partial results of quantized matrix multiplications held side by side."""
    logits_of_all_tokens: bool = False
    """Logits are reserved for every token of the step, instead of one for each sequence."""
    scores_without_flash: bool = False
    """Without flash attention, the scores of a layer over the whole context are held."""
    unchunked: bool = False
    """The run has as many tokens as the longest sequence, where prefill is not chunked."""
    chunk_from_tokens: int | None = None
    """Longest sequence from which on such an engine chunks by itself, in steps of the scheduler's default."""
    encoder: bool = True
    encoder_high_fraction: float = 1.6
    """How far the profile of an encoder may exceed that of its largest picture: videos, several pictures."""
    beside: bool = False
    """Sampler and decoder buffers are allocated beside the forward pass, not after it."""
    low_fraction: float = 0.85
    high_fraction: float = 1.2
    source: str = ""


NO_PROFILE = ProfileRules(
    hidden_copies=2,
    moe_hidden_copies=2,
    reduced_hidden_copies=0,
    stream_copies=0,
    sampler_hidden_copies=0,
    encoder=False,
    low_fraction=0.5,
    high_fraction=1.6,
    source="a rule of thumb: two copies of the hidden state and the inner widths",
)


@frozen
class EngineRules:
    """The rules of one engine at one version, resolved for one GPU.

    ``sampler_logit_copies`` is the peak of the profiling run's sampler in units of ``max_num_seqs x vocabulary x 4
    bytes``. ``cuda_graph_bytes`` is what the engine charges to its budget (0 where graphs come on top).
    """

    engine: str
    version: str
    oldest: str
    newest: str
    """Oldest and newest version whose rules were read."""
    generation: str = ""
    """Engine core or model runner within a version: ``v0``, ``v1`` or ``v2`` of vLLM."""
    fraction: float | None
    fraction_base: FractionBase
    fraction_flag: str
    fraction_source: str
    block_tokens: int
    scheduler: SchedulerDefaults
    sampler_logit_copies: float
    sampler_source: str
    sampler_high_logit_copies: float = 0.0
    """What the sampler may take where it is not known which of two runs; 0: that is known."""
    sampler_high_source: str = ""
    cuda_graph_bytes: int
    cuda_graph_low_bytes: int = 0
    cuda_graph_high_bytes: int = 0
    cuda_graph_source: str
    small_batch_graph_bytes: int = 0
    """What is charged where few sequences run at once, so that few graphs are captured."""
    non_torch: Band
    non_torch_weight_fraction: float = 0.0
    """Further share of the weights that counts as used by others (unified memory: pages of the loader)."""
    profile: ProfileRules = NO_PROFILE
    token_line: TokenLine = TokenLine.BLOCKS
    printed_line_source: str = ""
    allocator: Allocator = Allocator.UNIFORM
    null_blocks: int = 0
    """Blocks that hold no tokens."""
    checks_longest: bool = True
    """Start is refused where not one sequence of the longest length fits; else such a sequence is rejected when it
    comes."""
    recurrent_pages: int = 1
    """Pages one request takes in each group of recurrent layers."""
    refuses_more_states: bool = False
    """``max_num_seqs`` above the number of blocks is refused where recurrent layers take one for each sequence."""
    in_flight_steps: int = 1
    """Steps of batched tokens that a windowed layer keeps beside its window."""
    latent_multiple: int = 1
    """Elements of a latent are padded to a multiple of this."""
    latent_as_heads: bool = False
    """Latent attention is not known: keys and values of every head are stored."""
    window_pool_fraction: float = 0.0
    """Tokens of a second pool, that of windowed layers, over those of the first; 0: the engine has none."""
    state_pool_ratio: float = 0.0
    """Recurrent states have a pool of their own, this many times what is left for attention; 0: they have none."""
    absorbed_latent_copies: int = 0
    """Copies of the latent up-projection that are unpacked to 16 bit beside the stored one."""
    absorbed_output: bool = False
    """The up-projection of values is multiplied into the output projection and stored besides."""
    loaded_as: tuple[tuple[str, str], ...] = ()
    """Weight formats that are another one once loaded (scales unpacked at loading)."""
    host_embedding: bool = False
    """The input embedding stays in host memory."""
    expert_input_multiple: int = 1
    """Input width of MXFP4 experts is padded to a multiple of this."""
    expert_inner_multiple: int = 1
    """Inner width of MXFP4 experts on a rank is padded to a multiple of this."""
    allocation_bytes: int = 2 * MIB
    """Granularity of the framework's allocator for large tensors."""
    whole_allocations: bool = False
    """Memory is read from the device, where every started allocation counts in full."""
    rank_spread_fraction: float = 0.004
    """How much of the card the least rank lies below the printed one."""
    machines_spread_fraction: float = 0.024
    """The same for ranks on several machines: 0.85 of 39.5 GiB and 2.1 of 121.6 GiB in two logs."""


_MAX_DIGITS = 6
_SUFFIXES = ("rc", "a", "b", "post", "dev", "+", "-")


def parse_version(text: str) -> tuple[int, ...]:
    """Return ``(0, 33)`` for ``"0.33"``, ``"v0.33.0rc1"`` gives ``(0, 33, 0)``.

    Raises:
        UsageError: the text does not start with a number.

    >>> parse_version("v0.8.5.post1")
    (0, 8, 5)

    """
    numbers: list[int] = []
    rest = ""
    for part in text.strip().lower().removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        rest = part[len(digits) :]
        if digits and len(digits) <= _MAX_DIGITS:
            numbers.append(int(digits))
        if rest or not digits:
            break
    if rest and not rest.startswith(_SUFFIXES):
        numbers.clear()
    if not numbers:
        raise UsageError(f"{text!r} is not a version", place="--engine-version", hint="write it like 0.33 or 0.19.1")
    return tuple(numbers)


def at_version(steps: tuple[Since[T], ...], version: tuple[int, ...]) -> Since[T]:
    """Return the last step that has begun at ``version`` (the first, if none has)."""
    chosen = steps[0]
    for step in steps:
        if step.version <= version:
            chosen = step
    return chosen


def band(value: float, low: float, high: float, source: str, *, unit: int = GIB) -> Band:
    """Return a band from three figures in ``unit`` bytes."""
    return Band(
        value_bytes=round(value * unit), low_bytes=round(low * unit), high_bytes=round(high * unit), source=source
    )


def linked(gpu: Gpu, *, ranks: int) -> bool:
    """Return whether ``ranks`` reach each other over the GPU's scale-up link: more than a machine's, within each.

    A bridge that is bought apart is taken to be absent (two RTX 3090 in two logs hold what PCIe cards do).
    """
    link = gpu.scale_up
    return link is not None and not link.optional and link.max_domain >= min(ranks, gpu.max_per_machine)


ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
_ALIASES = {
    "trt-llm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "tensorrt_llm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
}
_ALIASES |= {"llama-server": "llama.cpp", "llama_cpp": "llama.cpp", "sgl": "sglang"}


def engine_name(engine: str) -> str:
    """Return the name by which rules know an engine that is called ``engine``.

    >>> engine_name("TRT-LLM"), engine_name("llama-server")
    ('tensorrt-llm', 'llama.cpp')
    """
    word = engine.strip().lower()
    return _ALIASES.get(word, word)


def engine_rules(
    engine: str, version: str | None, gpu: Gpu, *, tp: int, pp: int = 1, dp: int = 1, served: Served = PLAIN
) -> EngineRules:
    """Return the rules of ``engine`` at ``version`` (None: the newest known) on ``gpu``, for a model and its ranks.

    Raises:
        UnknownName: no such engine.
        UsageError: the version cannot be read.

    """
    name = engine_name(engine)
    # Without experts, attention-DP ranks are engines that do not communicate.
    joined = dp if served.experts else 1
    match name:
        case "vllm":
            from infcalc.engines.vllm import rules  # noqa: PLC0415 - only the asked engine is loaded

            return rules(version, gpu, ranks=tp * joined, pp=pp, served=served)
        case "sglang":
            from infcalc.engines import sglang  # noqa: PLC0415

            return sglang.rules(version, gpu, tp=tp, pp=pp, dp=dp, joined=joined, served=served)
        case "tensorrt-llm":
            from infcalc.engines import tensorrt_llm  # noqa: PLC0415

            return tensorrt_llm.rules(version, gpu, ranks=tp * dp)
        case "llama.cpp":
            from infcalc.engines import llamacpp  # noqa: PLC0415

            return llamacpp.rules(version, gpu)
        case _:
            import difflib  # noqa: PLC0415

            nearest = tuple(difflib.get_close_matches(name, ENGINES)) or ENGINES
            raise UnknownName("engine", engine, nearest)

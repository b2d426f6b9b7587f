"""What an engine adds to a step's kernels, and how it orders prefill and decode, by era. As data.

Overheads stand for what is lost between kernels on the device (``per_layer_s``), what the scheduler does while the
device waits (``per_step_s``), what is done for every running sequence of a step (``per_sequence_s``), and what the
process in front of the engine does for every request and every streamed token. They were set by hand, in view of the
published runs that each value's :class:`Footing` names: of several sources for some engines, of one for others, and of
none for a few. The ``source`` of a step says what changed in the engine, not where its microseconds come from.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.engines.rules import Since, at_version, parse_version
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


class Order(StrEnum):
    """How prefill and decode share the device."""

    MIXED = "mixed"
    """Chunks of prompts ride in decode steps, up to the tokens of a step."""
    PREFILL_FIRST = "prefill first"
    """A step is all prefill or all decode; prefill goes first and decode waits."""
    STATIC = "static"
    """A batch is formed, prefilled and decoded to its end before the next."""


@frozen
class Footing:
    """What a value rests on that was set by hand: which quantities of published runs were in view, of which sources.

    Sources are groups of tests/published/serving_measured.yaml. ``otherwise`` says what it was taken from where no run
    was in view, or besides them.
    """

    quantities: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    otherwise: str = ""
    stretched: str = ""
    """How a calibration changed it: it is then no more what was set by hand."""

    @property
    def text(self) -> str:
        """In words.

        >>> Footing(quantities=("TPOT", "TTFT"), sources=("a", "b")).text
        'set by hand: TPOT, TTFT of 2 sources (a, b)'
        >>> Footing(otherwise="from a document").text
        'set by hand: no published run, from a document'
        """
        number = len(self.sources)
        runs = "no published run"
        if self.sources:
            sources = f"{number} sources" if number > 1 else "1 source only"
            runs = f"{', '.join(self.quantities)} of {sources} ({', '.join(self.sources)})"
        text = f"set by hand: {runs}{', ' if self.otherwise else ''}{self.otherwise}"
        return f"{self.stretched}; before that {text}" if self.stretched else text


_NOTHING = Footing()
OF_STEPS = ("per_layer_s", "per_step_s", "per_sequence_s")
OF_FRONT_END = ("request_s", "token_s")


@frozen
class Pace:
    """Overheads and order of one engine at one version."""

    order: Order
    per_layer_s: float
    per_step_s: float
    per_sequence_s: float
    request_s: float
    """Front end, per request: HTTP, tokenising. One process does it, request after request."""
    token_s: float
    """Front end, per streamed token: detokenising, sending."""
    prompt_token_s: float
    """Front end, per token of a prompt: tokenising."""
    latency_s: float
    """What a lone request waits in the front end on its way to the scheduler, and its first token on the way out."""
    prefill_tokens: int | None = None
    """Tokens of a prefill step where that is not the scheduler's limit."""
    num_steps_ahead: int = 0
    """Steps that are scheduled while one runs: a request that comes meanwhile joins after them."""
    eager_layer_s: float = 0.0
    """Least time of a layer in a step whose kernels are launched one by one."""
    eager_message_s: float = 0.0
    """Least time of a message between GPUs in such a step."""
    eager_beyond_tokens: float = math.inf
    """Context beyond which decode is not replayed from a graph; below 0 no step is."""
    steps: Footing = _NOTHING
    """Of the overheads of a step."""
    front_end: Footing = _NOTHING
    """Of what it takes for each request and token."""
    latency: Footing = _NOTHING
    eager: Footing = _NOTHING

    def footing(self, name: str) -> Footing:
        """Return what the value of a field rests on.

        Raises:
            KeyError: it is no value that was set by hand.

        """
        by_name = dict.fromkeys(OF_STEPS, self.steps) | dict.fromkeys(OF_FRONT_END, self.front_end)
        tokenised = replace(_OF_TOKENISERS, stretched=self.front_end.stretched)
        of_eager = dict.fromkeys(("eager_layer_s", "eager_message_s"), self.eager)
        return (by_name | of_eager | {"prompt_token_s": tokenised, "latency_s": self.latency})[name]

    def eager_floor_s(self, *, num_layers: int, num_gpus: int) -> float:
        """Return the least time of a step that the host launches kernel by kernel."""
        messages_s = _MESSAGES_PER_LAYER * self.eager_message_s if num_gpus > 1 else 0.0
        return num_layers * (self.eager_layer_s + messages_s)


_MESSAGES_PER_LAYER = 2
"""One after the mixer and one after the feed-forward part."""


_TOKENISE_S = 2e-6
"""Half a million tokens a second in one thread: what fast tokenisers reach on prompts of some thousand tokens."""
_OF_TOKENISERS = Footing(otherwise="half a million tokens a second in one thread of a fast tokeniser")
_US = 1e-6
_MS = 1e-3


def _pace(
    order: Order,
    layer_us: float,
    step_ms: float,
    sequence_us: float,
    *,
    request_ms: float = 0.5,
    token_us: float = 5.0,
    latency_ms: float = 3.0,
    prefill_tokens: int | None = None,
    num_steps_ahead: int = 0,
    eager: _Eager | None = None,
    steps: Footing = _NOTHING,
    front_end: Footing = _NOTHING,
    latency: Footing = _NOTHING,
) -> Pace:
    launched = eager or _EAGER
    return Pace(
        order=order,
        per_layer_s=layer_us * _US,
        per_step_s=step_ms * _MS,
        per_sequence_s=sequence_us * _US,
        request_s=request_ms * _MS,
        token_s=token_us * _US,
        prompt_token_s=0.0 if order is Order.STATIC else _TOKENISE_S,
        latency_s=latency_ms * _MS,
        prefill_tokens=prefill_tokens,
        num_steps_ahead=num_steps_ahead,
        eager_layer_s=launched.layer_s,
        eager_message_s=launched.message_s,
        eager_beyond_tokens=launched.beyond_tokens,
        steps=steps,
        front_end=front_end,
        latency=latency,
        eager=launched.footing,
    )


@frozen
class _Eager:
    """What the host needs to launch the kernels of one layer, and from which context on it must."""

    layer_s: float
    message_s: float
    beyond_tokens: float
    footing: Footing


_EAGER = _Eager(
    layer_s=15 * 6.0 * _US,
    message_s=44.0 * _US,
    beyond_tokens=math.inf,
    footing=Footing(
        otherwise="8 to 15 launches of 4 to 6 us in a layer and 20 to 44 us for a message were timed, and what is not "
        "captured is not fused either: the upper ends, still a floor (vLLM V0 took 600 us for a layer)"
    ),
)
"""Decode is replayed from graphs, unless they are switched off."""
_EAGER_V0 = _Eager(
    layer_s=600.0 * _US,
    message_s=0.0,
    beyond_tokens=8192.0,
    footing=Footing(
        quantities=("output tokens/s", "TPOT"),
        sources=("accelmark", "dstack_tgi"),
        otherwise="a layer takes some 0.5 to 1.1 ms, by the host, messages included",
    ),
)
"""V0 replays graphs up to max_seq_len_to_capture (8192)."""


def without_graphs(pace: Pace) -> Pace:
    """Return a pace whose every step is launched kernel by kernel: CUDA graphs off."""
    return replace(pace, eager_beyond_tokens=-1.0)


def stretched(pace: Pace, *, step_factor: float = 1.0, front_end_factor: float = 1.0, source: str = "") -> Pace:
    """Return a pace that adds so many times as much to a step, and takes so many times as long in the front end.

    ``source`` is what says so; values that change then name it as what they rest on.

    >>> stretched(pace("vllm", "0.14").value, step_factor=2).per_step_s
    0.0006
    """
    return replace(
        pace,
        per_layer_s=pace.per_layer_s * step_factor,
        per_step_s=pace.per_step_s * step_factor,
        per_sequence_s=pace.per_sequence_s * step_factor,
        request_s=pace.request_s * front_end_factor,
        token_s=pace.token_s * front_end_factor,
        prompt_token_s=pace.prompt_token_s * front_end_factor,
        latency_s=pace.latency_s * front_end_factor,
        steps=_changed(pace.steps, step_factor, source),
        front_end=_changed(pace.front_end, front_end_factor, source),
        latency=_changed(pace.latency, front_end_factor, source),
    )


def _changed(footing: Footing, factor: float, source: str) -> Footing:
    if factor == 1 or not source:
        return footing
    return replace(footing, stretched=f"{factor:.3g} times as long by {source}")


_RATE, _TPOT, _TTFT, _E2E = "output tokens/s", "TPOT", "TTFT", "end to end"


def _of(sources: str, *quantities: str, otherwise: str = "") -> Footing:
    return Footing(quantities=quantities, sources=tuple(sources.split()), otherwise=otherwise)


_PACE: Mapping[str, tuple[Since[Pace], ...]] = {
    "vllm": (
        Since(
            version=(0,),
            value=_pace(
                Order.PREFILL_FIRST,
                15,
                5.0,
                60,
                request_ms=3,
                token_us=60,
                latency_ms=8,
                eager=_EAGER_V0,
                steps=Footing(otherwise="from the shares of time that its makers published"),
                front_end=Footing(otherwise="from the shares of time that its makers published"),
                latency=Footing(otherwise="from the shares of time that its makers published"),
            ),
            source="vLLM V0 before 0.6: 38 % of the time on the GPU with Llama 3 8B on H100 (vLLM blog 2024-09-05)",
        ),
        Since(
            version=(0, 6),
            value=_pace(
                Order.PREFILL_FIRST,
                12,
                2.5,
                25,
                request_ms=3,
                token_us=80,
                latency_ms=6,
                eager=_EAGER_V0,
                steps=_of("accelmark dstack_dsr1 dstack_tgi", _RATE, _TPOT, _E2E),
                front_end=_of("accelmark dstack_dsr1 dstack_tgi", _TTFT, _TPOT),
                latency=_of("accelmark dstack_dsr1 dstack_tgi", _TTFT),
            ),
            source="vLLM V0 from 0.6: API server in a process of its own, output processed beside the step",
        ),
        Since(
            version=(0, 8),
            value=_pace(
                Order.MIXED,
                6,
                0.9,
                10,
                request_ms=2.0,
                token_us=60,
                latency_ms=6,
                steps=_of("accelmark gpustack inferencex iog issues rocm_vllm", _RATE, _TPOT, _E2E),
                front_end=_of("gpustack inferencex iog issues", _RATE, _TPOT, _TTFT),
                latency=_of("gpustack inferencex iog", _TTFT),
            ),
            source="vLLM V1: engine core in a process of its own, scheduler before each step (vLLM blog 2025-01-27)",
        ),
        Since(
            version=(0, 14),
            value=_pace(
                Order.MIXED,
                2,
                0.3,
                4,
                request_ms=1.5,
                token_us=50,
                latency_ms=10,
                num_steps_ahead=1,
                steps=_of("accelmark inferencex vllm_fp8kv", _RATE, _TPOT),
                front_end=_of("accelmark inferencex vllm_fp8kv", _TTFT),
                latency=_of("accelmark inferencex vllm_fp8kv", _TTFT),
            ),
            source="vLLM V1 from 0.14: asynchronous scheduling by default, one step ahead (AsyncScheduler)",
        ),
    ),
    "sglang": (
        Since(
            version=(0,),
            value=_pace(
                Order.PREFILL_FIRST,
                8,
                1.2,
                8,
                request_ms=2.0,
                token_us=60,
                latency_ms=8,
                steps=_of("dstack_dsr1", _RATE, _TPOT, _E2E),
                front_end=_of("dstack_dsr1", _TTFT),
                latency=_of("dstack_dsr1", _TTFT),
            ),
            source="SGLang: zero-overhead scheduler from 0.4 (LMSYS blog 2024-12-04)",
        ),
        Since(
            version=(0, 5),
            value=_pace(
                Order.PREFILL_FIRST,
                4,
                0.5,
                4,
                request_ms=1.5,
                token_us=50,
                latency_ms=8,
                steps=_of("gpustack", _RATE, _TPOT),
                front_end=_of("gpustack", _RATE, _TPOT, _TTFT),
            ),
            source="SGLang 0.5: overlap scheduler on by default",
        ),
    ),
    "tensorrt-llm": (
        Since(
            version=(0,),
            value=_pace(
                Order.MIXED,
                40,
                0.4,
                3,
                request_ms=0.2,
                token_us=2,
                latency_ms=3,
                steps=_of("argonne trtllm_v014_online trtllm_v06", _RATE, _TPOT, _E2E),
                front_end=_of("trtllm_v014_online", _RATE, _TPOT, _TTFT),
                latency=_of("trtllm_v014_online", _TTFT),
            ),
            source="TensorRT-LLM, compiled engines with the C++ runtime, kernels launched one by one",
        ),
        Since(
            version=(0, 15),
            value=_pace(
                Order.MIXED,
                8,
                0.4,
                3,
                request_ms=0.2,
                token_us=2,
                latency_ms=3,
                steps=_of("dstack_dsr1 trtllm_v017", _RATE, _TPOT, _E2E),
                front_end=_of("dstack_dsr1", _TTFT),
                latency=_of("dstack_dsr1", _TTFT),
            ),
            source="TensorRT-LLM with CUDA graphs for generation (cuda_graph_mode)",
        ),
        Since(
            version=(1,),
            value=_pace(
                Order.MIXED,
                4,
                0.5,
                4,
                request_ms=1.5,
                token_us=60,
                latency_ms=90,
                steps=_of("gpustack inferencex trtllm_v10", _RATE, _TPOT),
                front_end=_of("gpustack inferencex", _RATE, _TPOT, _TTFT),
                latency=_of("inferencex", _TTFT),
            ),
            source="TensorRT-LLM 1.0: PyTorch backend with overlap scheduler",
        ),
        Since(
            version=(1, 2),
            value=_pace(
                Order.MIXED,
                2,
                0.4,
                3,
                request_ms=1.5,
                token_us=50,
                latency_ms=20,
                steps=_of("gpustack inferencex", _RATE, _TPOT),
                front_end=_of("gpustack inferencex", _RATE, _TPOT, _TTFT),
                latency=_of("inferencex", _TTFT),
            ),
            source="TensorRT-LLM 1.2",
        ),
    ),
    "llama.cpp": (
        Since(
            version=(0,),
            value=_pace(Order.MIXED, 5, 0.1, 50, token_us=20, latency_ms=2, steps=_of("llamacpp", _RATE)),
            source="llama.cpp CUDA backend, 2024",
        ),
    ),
    "gpt-fast": (
        Since(
            version=(0,),
            value=_pace(Order.STATIC, 10, 0.2, 5, request_ms=0, token_us=0, latency_ms=0, steps=_of("gptfast", _RATE)),
            source="gpt-fast: torch.compile with CUDA graphs, no scheduler",
        ),
    ),
    "lmdeploy": (
        Since(
            version=(0,),
            value=_pace(
                Order.PREFILL_FIRST, 6, 0.4, 5, request_ms=0.5, token_us=10, latency_ms=3, steps=_of("lmdeploy", _RATE)
            ),
            source="LMDeploy TurboMind: C++ persistent batching",
        ),
    ),
    "tgi": (
        Since(
            version=(0,),
            value=_pace(
                Order.PREFILL_FIRST,
                40,
                4.0,
                30,
                request_ms=1,
                token_us=10,
                latency_ms=8,
                steps=_of("dstack_tgi", _RATE, _TPOT),
                front_end=_of("dstack_tgi", _TTFT),
                latency=_of("dstack_tgi", _TTFT),
            ),
            source="text-generation-inference 2.x: Rust router, Python model server",
        ),
    ),
    "hf": (
        Since(
            version=(0,),
            value=_pace(Order.STATIC, 450, 2.0, 10, request_ms=0, token_us=0, latency_ms=0),
            source="Hugging Face transformers: eager kernels, launched one by one",
        ),
    ),
    "autoawq": (
        Since(
            version=(0,),
            value=_pace(Order.STATIC, 40, 0.3, 10, request_ms=0, token_us=0, latency_ms=0, steps=_of("autoawq", _RATE)),
            source="AutoAWQ with fused modules on Hugging Face generate: eager, fewer launches per layer",
        ),
    ),
}

_BYTES_PER_S_PER_SM = {"llama.cpp": 12e9}
"""Most that an engine's matrix-vector kernels read, per multiprocessor: some 1 TB/s on cards of 82 to 114."""
_EARLY: Mapping[str, tuple[tuple[int, ...], float]] = {
    "vllm": ((0, 8), 2.0),
    "sglang": ((0, 4, 5), 2.0),
    "tensorrt-llm": ((0, 19), 2.0),
}
"""Until when latent attention with routed experts ran on kernels of its first months, and how much longer it took.

Runs of DeepSeek-R1 on 8 H200 in March 2025 (dstack) agree on it through these three engines' servers: decode within 10
to 15 %. Two kinds of run stay known misses. Offline runs of TensorRT-LLM took 2 to 4 times as long as predicted: not on
the version that their entries state, but on an engine compiled with 16-bit plugins from the branch ``deepseek``, its
first. SGLang's first token of a prompt of 3200 tokens came after 3.6 s with no more than 4 clients.
"""


def kernel_factor(
    engine: str, version: str | None, *, latent_experts: bool, bandwidth_bytes_per_s: float, num_sms: int | None
) -> float:
    """Return how much longer an engine's own kernels take than those the clock knows; 1 where nothing is known.

    ``latent_experts``: latent attention together with routed experts, whose kernels came late.
    """
    found = 1.0
    if latent_experts and engine in _EARLY and version is not None:
        until, factor = _EARLY[engine]
        if parse_version(version.partition("+")[0]) < until:
            found *= factor
    if engine in _BYTES_PER_S_PER_SM and num_sms:
        found *= max(1.0, 0.8 * bandwidth_bytes_per_s / (_BYTES_PER_S_PER_SM[engine] * num_sms))
    return found


_UNTUNED_ON_CDNA3: Mapping[str, tuple[int, ...]] = {"vllm": (0, 7), "tgi": (999,)}
"""Until when matrix multiplications on CDNA3 were those of ROCm 6.2 and before, untuned.

TGI was measured in one version of that time only: whether a later one is faster is not known.
"""
_UNTUNED_SHARES = {"gemm/bf16": 0.35, "gemm/fp8": 0.35}
"""64 to 256 tokens at 3 to 9 % of peak: MI300X in fp8 and in bf16 under two engines of 2024, in runs of one source."""


def compute_shares(engine: str, version: str | None, *, architecture: str) -> Mapping[str, float]:
    """Return the share of the measured compute efficiency that an engine's own kernels reach, by kernel.

    Kernels that are not named reach all of it. ``version`` None is the newest.
    """
    if not architecture.startswith("CDNA3") or engine not in _UNTUNED_ON_CDNA3:
        return {}
    at = (99,) if version is None else parse_version(version.partition("+")[0])
    return _UNTUNED_SHARES if at < _UNTUNED_ON_CDNA3[engine] else {}


@frozen
class Factor:
    """By how much an engine's own kernels are slower than those that were timed, as a rule of one kind."""

    what: str
    value: str
    engines: tuple[str, ...]
    footing: Footing


LATENT_EXPERTS = Factor(
    what="latent attention with routed experts on kernels of its first months (vLLM before 0.8, SGLang before 0.4.5, "
    "TensorRT-LLM before 0.19)",
    value="2 times as long",
    engines=tuple(_EARLY),
    footing=_of("dstack_dsr1", _RATE, _TPOT),
)
MATRIX_VECTOR = Factor(
    what="matrix-vector kernels of llama.cpp",
    value="12 GB/s read per multiprocessor at most",
    engines=tuple(_BYTES_PER_S_PER_SM),
    footing=_of("llamacpp", _RATE),
)
UNTUNED_CDNA3 = Factor(
    what="matrix multiplications on CDNA3 before ROCm 6.3 (vLLM before 0.7, TGI in every version)",
    value="0.35 of the measured compute efficiency",
    engines=tuple(_UNTUNED_ON_CDNA3),
    footing=_of("dstack_tgi", _RATE, _TPOT),
)
FACTORS = (LATENT_EXPERTS, MATRIX_VECTOR, UNTUNED_CDNA3)


_FRONT_END_PER_RANK: Mapping[str, tuple[int, ...]] = {"vllm": (0, 16)}
"""From which version an engine starts an API server for each data-parallel rank unless told otherwise.

vLLM 0.16 sets --api-server-count to --data-parallel-size (``vllm/entrypoints/cli/serve.py``); 0.11 started one. SGLang
has one tokenizer manager (--tokenizer-worker-num 1), TensorRT-LLM one ``trtllm-serve``.
"""


def num_front_ends(engine: str, version: str | None, num_ranks: int) -> int:
    """Return how many processes take requests in for so many data-parallel ranks; ``version`` None is the newest."""
    since = _FRONT_END_PER_RANK.get(engine)
    if since is None:
        return 1
    return num_ranks if version is None or parse_version(version.partition("+")[0]) >= since else 1


PACED = tuple(_PACE)
"""Engines whose pace is known: those of :data:`infcalc.engines.rules.ENGINES`, and some that serve no ledger."""


def paces() -> Mapping[str, tuple[Since[Pace], ...]]:
    """Return what is known, by engine, the oldest version first."""
    return _PACE


def pace(engine: str, version: str | None, generation: str = "") -> Since[Pace]:
    """Return the pace of ``engine`` at ``version`` (None: the newest known), with its source.

    ``generation`` ``v0`` or ``v1`` of vLLM decides where a version had both engines.
    """
    steps = _PACE[engine]
    at: tuple[int, ...] = (999,)
    if version is not None and len(steps) > 1:
        at = parse_version(version.partition("+")[0])
    if engine == "vllm":
        if generation == "v0":
            at = min(at, (0, 7, 99))
        elif generation in {"v1", "v2"}:
            at = max(at, (0, 8))
    return at_version(steps, at)

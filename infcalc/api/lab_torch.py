"""A device as torch drives it: puts a case on it, and times it there. Nothing else imports torch.

On a GPU kernels run from a CUDA graph, as the engines run them, between two events: what the host takes to launch them
is not in their time. On a CPU they run one after the other under the clock that is handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from infcalc.api.lab_device_cases import BYTES_OF, HEAD_DIM, NUM_HEADS, NUM_KV_HEADS
from infcalc.api.lab_device_nouns import Case, Family
from infcalc.errors import UsageError
from infcalc.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[int], object]

_Made = TypeVar("_Made")

DEVICES = ("cuda", "cpu")
_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
_POOL_BYTES = 512 * MIB
_CPU_POOL_BYTES = 256 * MIB
"""Matrices are taken in turns from so much memory: none is still in a cache when it comes again."""
_MOST_COPIES = 256
_MS_PER_S = 1e3
_MOST_TOLD = 160
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


class LeftOutError(Exception):
    """A case that does not run here: the text says why."""


def torch_module() -> Any:  # noqa: ANN401 - torch is not there to name its type
    """Return torch.

    Raises:
        UsageError: it is not installed, or cannot be loaded.

    """
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra, and seconds to load
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise _broken(problem) from None
        raise UsageError(
            "torch is not installed",
            place="--device",
            hint="pip install 'infcalc[torch]' (in a checkout: pip install '.[torch]'), or infcalc lab measure without "
            "--device, which needs numpy alone",
        ) from None
    except (ImportError, OSError) as problem:
        raise _broken(problem) from None
    return torch


def _broken(problem: Exception) -> UsageError:
    return UsageError(
        f"torch is installed, and cannot be loaded: {_line(problem)}",
        place="--device",
        hint="python -c 'import torch' shows the whole error; install torch anew",
    )


def check_device(kind: str) -> None:
    """Refuse what is no kind of device, whether or not torch is installed.

    Raises:
        UsageError: it is none.

    """
    if kind not in DEVICES:
        raise UsageError(f"{kind!r} is no device", place="--device", hint=f"one of {', '.join(DEVICES)}")


class TorchDevice:
    """One device of torch.

    Raises:
        UsageError: no such kind of device, or torch sees none of it.

    """

    def __init__(self, torch: Any, kind: str, clock: Callable[[], float]) -> None:  # noqa: ANN401 - as above
        check_device(kind)
        self.kind = kind
        self.without_graph = False
        """Whether a CUDA graph could not be made: times then hold what launches take."""
        self._torch, self._clock = torch, clock
        self.version = str(torch.__version__)
        if kind == "cuda":
            self._check_cuda()

    def _check_cuda(self) -> None:
        torch = self._torch
        try:
            found = torch.cuda.is_available()
        except RuntimeError:
            found = False
        if found:
            return
        built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
        why = (
            "nvidia-smi says whether the driver sees a GPU, CUDA_VISIBLE_DEVICES which of them torch may use"
            if built
            else "this torch is built for the CPU alone: install a build for CUDA"
        )
        raise UsageError(
            f"torch {self.version} sees no CUDA device",
            place="--device cuda",
            hint=f"{why}; --device cpu measures the processor",
        )

    @property
    def title(self) -> str:
        """What torch calls it; empty for a CPU, which torch does not name."""
        return str(self._torch.cuda.get_device_name(0)) if self.kind == "cuda" else ""

    @property
    def num_devices(self) -> int:
        """How many of its kind torch sees."""
        return int(self._torch.cuda.device_count()) if self.kind == "cuda" else 1

    @property
    def memory_bytes(self) -> int | None:
        """All of its memory; None for a CPU."""
        return int(self._torch.cuda.get_device_properties(0).total_memory) if self.kind == "cuda" else None

    def ready(self, case: Case) -> Work:
        """Return what runs ``case``; its argument counts the runs, each of which takes the next operands.

        Raises:
            LeftOutError: it does not run on this device, or has no room there.

        """
        return self._guarded(lambda: self._made(case))

    def sampler(self, work: Work, num: int) -> Callable[[], float]:
        """Return what runs ``work`` ``num`` times and gives the seconds of one run; it has warmed up.

        Raises:
            LeftOutError: as above, and so does what is returned.

        """

        def made() -> Callable[[], float]:
            return self._cuda_sampler(work, num) if self.kind == "cuda" else self._cpu_sampler(work, num)

        sample = self._guarded(made)

        def seconds() -> float:
            return self._guarded(sample) / num

        return seconds

    def release(self) -> None:
        """Give back the memory of the last case."""
        if self.kind == "cuda":
            self._torch.cuda.empty_cache()

    def _guarded(self, act: Callable[[], _Made]) -> _Made:
        try:
            return act()
        # What torch has no kernel for it says by one of these.
        except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError, MemoryError) as problem:
            self.release()
            text = _line(problem)
            if isinstance(problem, MemoryError) or any(word in str(problem).lower() for word in _NO_MEMORY):
                text = "out of memory"
            raise LeftOutError(text) from None

    def _cpu_sampler(self, work: Work, num: int) -> Callable[[], float]:
        def sample() -> float:
            with self._torch.inference_mode():
                start_s = self._clock()
                for index in range(num):
                    work(index)
                return self._clock() - start_s

        with self._torch.inference_mode():
            work(0)
        return sample

    def _cuda_sampler(self, work: Work, num: int) -> Callable[[], float]:
        cuda = self._torch.cuda
        with self._torch.inference_mode():
            runs = self._graph(work, num)
            # The first replay loads the graph.
            runs()
            cuda.synchronize()

        def sample() -> float:
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            with self._torch.inference_mode():
                start.record()
                runs()
                end.record()
            cuda.synchronize()
            return float(start.elapsed_time(end)) / _MS_PER_S

        return sample

    def _graph(self, work: Work, num: int) -> Callable[[], object]:
        def eagerly() -> None:
            for index in range(num):
                work(index)

        cuda = self._torch.cuda
        eagerly()
        cuda.synchronize()
        if self.without_graph:
            return eagerly
        try:
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                eagerly()
        except RuntimeError as problem:
            if any(word in str(problem).lower() for word in _NO_MEMORY):
                raise
            self.without_graph = True
            return eagerly
        replay: Callable[[], object] = graph.replay
        return replay

    # Cases -> work

    def _made(self, case: Case) -> Work:
        match case.family:
            case Family.CALL | Family.STREAM | Family.GEMM:
                return self._product(case)
            case Family.PREFILL:
                return self._prefill(case)
            case Family.DECODE:
                return self._decode(case)
            case Family.UPLOAD | Family.DOWNLOAD:
                return self._crossing(case)
            case _:
                return self._copy(round(case.num_bytes / 2))

    def _copies(self, num_bytes: float) -> int:
        pool = _CPU_POOL_BYTES if self.kind == "cpu" else _POOL_BYTES
        return max(1, min(_MOST_COPIES, round(pool / max(1.0, num_bytes))))

    def _noise(self, *shape: int, precision: str) -> Any:  # noqa: ANN401 - a tensor
        torch = self._torch
        kept = getattr(torch, _TYPES[precision])
        drawn = torch.bfloat16 if precision == "fp8" else kept
        noise = torch.randn(*shape, device=self.kind, dtype=drawn)
        return noise.to(kept) if kept is not drawn else noise

    def _product(self, case: Case) -> Work:
        torch, precision = self._torch, case.precision
        rows = self._noise(case.tokens, case.num_inner, precision=precision)
        num = self._copies(case.num_columns * case.num_inner * BYTES_OF[precision])
        matrices = self._noise(num, case.num_columns, case.num_inner, precision=precision)
        if precision != "fp8":
            return lambda index: torch.matmul(rows, matrices[index % num].t())
        one = torch.ones((), device=self.kind, dtype=torch.float32)
        return lambda index: torch._scaled_mm(  # noqa: SLF001 - torch has no public product of fp8 yet
            rows, matrices[index % num].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )

    def _prefill(self, case: Case) -> Work:
        attend = self._torch.nn.functional.scaled_dot_product_attention
        query, key, value = (
            self._noise(1, NUM_HEADS, case.tokens, HEAD_DIM, precision=case.precision) for _ in range(3)
        )
        return lambda _: attend(query, key, value, is_causal=True)

    def _decode(self, case: Case) -> Work:
        """Let the queries of a KV head stand as so many rows before it: its keys and values are then read once."""
        attend = self._torch.nn.functional.scaled_dot_product_attention
        num_sequences, context, precision = case.num_sequences, case.context_tokens, case.precision
        query = self._noise(num_sequences, NUM_KV_HEADS, NUM_HEADS // NUM_KV_HEADS, HEAD_DIM, precision=precision)
        num = self._copies(case.num_bytes)
        keys, values = (
            self._noise(num, num_sequences, NUM_KV_HEADS, context, HEAD_DIM, precision=precision) for _ in range(2)
        )
        return lambda index: attend(query, keys[index % num], values[index % num])

    def _copy(self, num_bytes: int) -> Work:
        torch, num = self._torch, self._copies(2 * num_bytes)
        sources, targets = (torch.zeros(num, num_bytes, device=self.kind, dtype=torch.uint8) for _ in range(2))
        return lambda index: targets[index % num].copy_(sources[index % num])

    def _crossing(self, case: Case) -> Work:
        torch, num_bytes = self._torch, round(case.num_bytes)
        there = torch.zeros(num_bytes, device=self.kind, dtype=torch.uint8)
        here = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=True)
        source, target = (here, there) if case.family is Family.UPLOAD else (there, here)
        return lambda _: target.copy_(source, non_blocking=True)


def _line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    text = lines[0] if lines else type(problem).__name__
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]} ..."

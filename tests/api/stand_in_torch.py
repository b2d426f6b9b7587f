"""A stand-in for torch: as much of it as the laboratory asks for, on a device that is one formula.

It computes nothing. Each call moves a clock by what a made-up device takes: the longer of computing and moving, by its
own fractions of its peaks, and a fixed time. What the laboratory then says of that device is known before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "uint8": 1}


class Tensor:
    """A shape and a type."""

    def __init__(self, torch: StandIn, shape: tuple[int, ...], dtype: str, device: str) -> None:
        self.torch, self.shape, self.dtype, self.device = torch, shape, dtype, device

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * BYTES[self.dtype]

    def to(self, dtype: str) -> Tensor:
        return Tensor(self.torch, self.shape, dtype, self.device)

    def t(self) -> Tensor:
        return Tensor(self.torch, self.shape[::-1], self.dtype, self.device)

    def __getitem__(self, index: int) -> Tensor:
        """Return one of the first dimension."""
        assert 0 <= index < self.shape[0]
        return Tensor(self.torch, self.shape[1:], self.dtype, self.device)

    def copy_(self, source: Tensor, *, non_blocking: bool = False) -> None:
        assert source.shape == self.shape
        if source.device == self.device:
            self.torch.spend(2 * self.num_bytes / self.torch.copied + self.torch.fixed_s)
        else:
            assert non_blocking
            self.torch.spend(self.num_bytes / self.torch.link)


class StandIn:
    """The module. Peaks and shares make the device; the rest says what goes wrong on it."""

    float32, float16, bfloat16, float8_e4m3fn, uint8 = BYTES
    __version__ = "9.9.9+standin"

    def __init__(
        self,
        *,
        name: str = "NVIDIA H100 80GB HBM3",
        peaks: dict[str, float] | None = None,
        bandwidth: float = 3.35e12,
        compute_share: float = 0.7,
        bandwidth_share: float = 0.8,
        cuda: bool = True,
        built: str | None = "12.9",
        num_devices: int = 1,
        memory_bytes: float = 80e9,
        graphs: bool = True,
        refused: tuple[str, ...] = (),
        jitter: Callable[[int], float] = lambda _: 1.0,
    ) -> None:
        self.peaks = peaks or {"float32": 66.9e12, "float16": 989.4e12, "bfloat16": 989.4e12, "float8_e4m3fn": 1979e12}
        self.bandwidth, self.compute_share, self.bandwidth_share = bandwidth, compute_share, bandwidth_share
        self.copied, self.link, self.fixed_s = 0.9 * bandwidth, 50e9, 2e-6
        self.memory_bytes, self.refused, self.jitter = memory_bytes, refused, jitter
        self.now_s, self.spent, self.in_graph = 0.0, 0, False
        self.version = SimpleNamespace(cuda=built, hip=None)
        self.cuda = _Cuda(self, name=name, available=cuda, num_devices=num_devices, graphs=graphs)
        self.nn = SimpleNamespace(functional=SimpleNamespace(scaled_dot_product_attention=self.attend))

    def clock(self) -> float:
        self.now_s += 1e-9
        return self.now_s

    def spend(self, time_s: float) -> None:
        self.spent += 1
        self.now_s += time_s * self.jitter(self.spent)

    def kernel(self, dtype: str, flop: float, num_bytes: float) -> None:
        if dtype in self.refused:
            raise RuntimeError(f"no kernel for {dtype}\nand more lines")
        compute_s = flop / (self.peaks[dtype] * self.compute_share)
        memory_s = num_bytes / (self.bandwidth * self.bandwidth_share)
        self.spend(max(compute_s, memory_s) + self.fixed_s)

    def randn(self, *shape: int, device: str, dtype: str) -> Tensor:
        made = Tensor(self, shape, dtype, device)
        if made.num_bytes > self.memory_bytes:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is.")
        return made

    def zeros(self, *shape: int, device: str = "cpu", dtype: str, pin_memory: bool = False) -> Tensor:
        assert device == "cpu" or not pin_memory
        return self.randn(*shape, device=device, dtype=dtype)

    def ones(self, shape: tuple[int, ...], *, device: str, dtype: str) -> Tensor:
        return Tensor(self, shape, dtype, device)

    @contextmanager
    def inference_mode(self) -> Iterator[None]:
        yield

    def matmul(self, rows: Tensor, matrix: Tensor) -> None:
        tokens, inner = rows.shape
        assert matrix.shape[0] == inner
        columns = matrix.shape[1]
        moved = columns * inner * BYTES[rows.dtype] + 2 * tokens * (columns + inner)
        self.kernel(rows.dtype, 2 * tokens * columns * inner, moved)

    def _scaled_mm(self, rows: Tensor, matrix: Tensor, *, scale_a: Tensor, scale_b: Tensor, out_dtype: str) -> None:
        assert (rows.dtype, out_dtype, scale_a.shape, scale_b.shape) == ("float8_e4m3fn", "bfloat16", (), ())
        self.matmul(rows, matrix)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> None:
        batch, heads, rows, width = query.shape
        assert key.shape == value.shape
        length = key.shape[2]
        pairs = rows * (rows + 1) / 2 if is_causal else rows * length
        # Prefill is made with a KV head for each of 32 heads: what the laboratory counts has 8 of them.
        kv_heads = 8 if is_causal else key.shape[1]
        moved = batch * (2 * kv_heads * width * length * (4 if is_causal else 2) + 4 * heads * rows * width)
        self.kernel(query.dtype, 4 * batch * heads * width * pairs, moved)


class OutOfMemoryError(RuntimeError):
    pass


class _Cuda:
    def __init__(self, torch: StandIn, *, name: str, available: bool, num_devices: int, graphs: bool) -> None:
        self.torch, self.name, self.available, self.num_devices, self.graphs = (
            torch,
            name,
            available,
            num_devices,
            graphs,
        )

    def is_available(self) -> bool:
        return self.available

    def device_count(self) -> int:
        return self.num_devices

    def get_device_name(self, _: int) -> str:
        return self.name

    def get_device_properties(self, _: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=int(self.torch.memory_bytes))

    def synchronize(self) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def Event(self, *, enable_timing: bool) -> _Event:  # noqa: N802 - as torch calls it
        assert enable_timing
        return _Event(self.torch)

    def CUDAGraph(self) -> _Graph:  # noqa: N802 - as torch calls it
        if not self.graphs:
            raise RuntimeError("graphs are not supported")
        return _Graph(self.torch)

    @contextmanager
    def graph(self, graph: _Graph) -> Iterator[None]:
        before_s = self.torch.now_s
        yield
        graph.taken_s = self.torch.now_s - before_s


class _Event:
    def __init__(self, torch: StandIn) -> None:
        self.torch, self.at_s = torch, 0.0

    def record(self) -> None:
        self.at_s = self.torch.now_s

    def elapsed_time(self, end: _Event) -> float:
        return (end.at_s - self.at_s) * 1e3


class _Graph:
    def __init__(self, torch: StandIn) -> None:
        self.torch, self.taken_s = torch, 0.0

    def replay(self) -> None:
        self.torch.spend(self.taken_s)


def as_module(standin: StandIn) -> Any:  # noqa: ANN401 - it stands in for a module
    """Return the stand-in as what an import gives."""
    return standin

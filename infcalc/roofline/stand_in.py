# mypy: ignore-errors
"""A stand-in for the step clock, to be deleted when that has landed: constants by width instead of measured curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.frozen import frozen
from infcalc.lowering.ops import Decode, ElementwiseIo, Op, OpKind, Prefill, StepShape, operations
from infcalc.lowering.tensors import inventory
from infcalc.roofline.price import compute_precision

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism
    from infcalc.spec.weights import WeightQuantization


class GpuEfficiency:
    """None yet."""


def curves_of(gpu: Gpu, efficiency: GpuEfficiency | None) -> Gpu:
    """Return the GPU: there are no curves yet."""
    del efficiency
    return gpu


_CONTEXTS = (0, 64, 128, 512, 1024, 2048, 4096, 16384, 131072, 1048576)
_PREFIXES = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144)
_MANY = 1 << 17


@frozen
class Overhead:
    """What a step takes beside its ops: per layer (launches), per step (scheduler), per sequence (sampling, output)."""

    per_layer_s: float
    per_step_s: float
    per_sequence_s: float


def _fractions(gpu: Gpu, precision: str) -> tuple[float, float]:
    """Return the compute fraction of many tokens, and the tokens at which half of it is reached."""
    old = gpu.architecture.startswith(("Ampere", "Volta", "Turing"))
    blackwell = "Blackwell" in gpu.architecture and "100" in gpu.architecture
    amd = gpu.vendor != "NVIDIA"
    if amd:
        return (0.45, 40.0) if precision in {"bf16", "fp16"} else (0.38, 60.0)
    match precision:
        case "fp4" | "int4":
            return 0.40, 60.0
        case "fp8" | "int8":
            return (0.50, 60.0) if blackwell else (0.58, 50.0)
        case _:
            return (0.64, 40.0) if blackwell else (0.75, 30.0) if old else (0.72, 40.0)


def _bandwidth(gpu: Gpu, bits: float) -> float:
    base = 0.82 if bits > 12 else 0.76 if bits > 6 else 0.70
    return base * (0.7 if gpu.vendor != "NVIDIA" else 1.0)


class StepClock:
    """Seconds of one engine step of a deployment; arguments may be arrays that broadcast."""

    def __init__(
        self,
        model: Model,
        curves: Gpu,
        *,
        parallelism: Parallelism,
        quantization: WeightQuantization | None,
        kv: KvFormat,
        overhead: Overhead,
        library: str | None = None,
    ) -> None:
        import numpy as np  # noqa: PLC0415

        del library
        gpu = curves
        self.num_stages = parallelism.pp

        self.np = np
        self.gpu, self.overhead, self.parallelism = gpu, overhead, parallelism
        self.num_layers, self.hidden = model.num_layers, model.hidden_size
        tensors = inventory(model, quantization)
        flat = type(parallelism)(tp=parallelism.tp, dp=parallelism.dp, ep=parallelism.ep, dcp=parallelism.dcp)

        def ops(shape: StepShape) -> tuple[Op, ...]:
            return operations(
                model, shape, parallelism=flat, kv=kv, tensors=tensors, elementwise_io=ElementwiseIo.SEPARATE
            )

        one = ops(StepShape(decodes=(Decode(context_tokens=0),)))
        many = ops(StepShape(decodes=(Decode(context_tokens=0, num_sequences=_MANY),)))
        self.linear: list[tuple[Any, ...]] = []
        self.recurrent: list[tuple[float, float, float]] = []
        for low, high in zip(one, many, strict=True):
            if low.kind in {OpKind.ATTENTION_DECODE, OpKind.INDEXER}:
                continue
            precision, peak = compute_precision(gpu, low.precision)
            if low.kind is OpKind.RECURRENT:
                self.recurrent.append(
                    (
                        low.flop / peak / 0.3,
                        (low.kv_read_bytes + low.kv_write_bytes) / gpu.bandwidth_bytes_per_s / 0.6,
                        0,
                    )
                )
                continue
            fraction, half = _fractions(gpu, precision)
            share = low.weight_bytes / high.weight_bytes if low.kind is OpKind.MOE else 1.0
            per_token = (high.weight_bytes - low.weight_bytes) / (_MANY - 1) if low.kind is OpKind.EMBEDDING else 0.0
            params = low.flop / 2 / max(share, 1e-9) if low.flop else 1.0
            bits = high.weight_bytes * 8 / params if low.kind is not OpKind.EMBEDDING else 16
            self.linear.append(
                (
                    low.kind,
                    low.flop / (peak * fraction),
                    half,
                    high.weight_bytes if low.kind is not OpKind.EMBEDDING else 0.0,
                    share,
                    high.activation_bytes / _MANY + per_token,
                    _bandwidth(gpu, bits),
                )
            )
        decode = [ops(StepShape(decodes=(Decode(context_tokens=c, num_sequences=1),))) for c in _CONTEXTS]
        self.decode_read = np.array([_attention(o).total for o in map(_attention_bytes, decode)])
        self.decode_flop = np.array([_attention_bytes(o).flop for o in decode])
        prefill = [ops(StepShape(prefills=(Prefill(new_tokens=n),))) for n in _PREFIXES]
        self.prefill_flop = np.array([0.0, *(_attention_bytes(o).flop for o in prefill)])
        self.prefill_bytes = np.array([0.0, *(_attention_bytes(o).total for o in prefill)])
        self.prefixes = np.array([0.0, *_PREFIXES])
        self.contexts = np.array(_CONTEXTS, dtype=float)
        self.peak = compute_precision(gpu, "bf16")[1]
        self.moe = any(row[0] is OpKind.MOE for row in self.linear)

    def slowest_s(self, **step: Any) -> Any:
        """Return the seconds of the slowest stage."""
        return self.step_s(**step) / self.num_stages

    def step_s(
        self,
        *,
        num_decodes: Any,
        context_tokens: Any,
        num_prefills: Any = 0,
        new_tokens: Any = 0,
        cached_tokens: Any = 0,
        decode_new_tokens: Any = 1,
    ) -> Any:
        """Return the seconds of one step on one rank."""
        np, gpu, dp = self.np, self.gpu, self.parallelism.dp
        decodes, context = np.asarray(num_decodes, float), np.asarray(context_tokens, float)
        prefills, new, cached = (np.asarray(x, float) for x in (num_prefills, new_tokens, cached_tokens))
        tokens = decodes * decode_new_tokens + prefills * new
        sampled = decodes * decode_new_tokens + prefills
        width = gpu.bandwidth_bytes_per_s
        total = 0.0
        for kind, compute, half, weights, share, activation, bandwidth in self.linear:
            count = sampled if kind is OpKind.LM_HEAD else tokens
            met = count
            factor = 1.0
            if kind is OpKind.MOE:
                met = count * dp
                weights = weights * (1 - (1 - share) ** met)
                per_expert = met * share
                flop_s = compute * count * (1 + half / (per_expert + half))
                factor = 1.25
                flop_s = flop_s * 1.5
            else:
                flop_s = compute * count * (1 + half / (count + half))
            memory_s = (weights + activation * count) / (width * bandwidth)
            total = total + factor * (memory_s**4 + flop_s**4) ** 0.25
        for per_token, per_sequence, _ in self.recurrent:
            total = total + per_token * tokens + per_sequence * (decodes + prefills)
        read = np.interp(context, self.contexts, self.decode_read)
        flop = np.interp(context, self.contexts, self.decode_flop)
        total = total + decodes * np.maximum(read / (width * 0.78), flop / (self.peak * 0.3))
        end = np.interp(cached + new, self.prefixes, self.prefill_flop) - np.interp(
            cached, self.prefixes, self.prefill_flop
        )
        # Short prompts cost far more per flop.
        fraction = 0.5 * (cached + new + 1) / (cached + new + 1500)
        moved = np.interp(new, self.prefixes, self.prefill_bytes) + np.interp(cached, self.contexts, self.decode_read)
        total = total + prefills * np.maximum(end / (self.peak * fraction), (new > 0) * moved / (width * 0.7))
        layers = self.num_layers
        extra = self.overhead
        per_layer = extra.per_layer_s * (2.0 if self.moe else 1.0)
        total = total + layers * per_layer + extra.per_step_s + extra.per_sequence_s * (decodes + prefills)
        return total + layers * 2 * self._reduce_s(tokens) + (self.parallelism.pp - 1) * 20e-6

    def _reduce_s(self, tokens: Any) -> Any:
        """Return the time of one all-reduce of the hidden state."""
        np, n = self.np, self.parallelism.tp * (self.parallelism.dp if self.moe else 1)
        if n == 1:
            return 0.0
        gpu = self.gpu
        size = tokens * self.hidden * 2
        joined = gpu.scale_up is not None and gpu.scale_up.max_domain >= min(n, 8)
        if joined and gpu.scale_up is not None:
            alpha = {2: 5e-6, 4: 7e-6}.get(n, 9e-6) * (1.0 if gpu.vendor == "NVIDIA" else 1.8)
            link = gpu.scale_up.bytes_per_s * (0.6 if gpu.vendor == "NVIDIA" else 0.4)
        else:
            far = "GeForce" in gpu.title
            alpha = ({2: 60e-6, 4: 75e-6}.get(n, 95e-6)) if far else {2: 15e-6, 4: 25e-6}.get(n, 40e-6)
            link = (gpu.pcie_bytes_per_s or 16e9) * (
                {2: 0.35, 4: 0.35}.get(n, 0.3) if far else {2: 0.6, 4: 0.45}.get(n, 0.4)
            )
        return np.where(size > 0, alpha + 2 * (n - 1) / n * size / link, 0.0)


@frozen
class _Sum:
    flop: float
    total: float


def _attention(found: _Sum) -> _Sum:
    return found


def _attention_bytes(ops: tuple[Op, ...]) -> _Sum:
    mine = [op for op in ops if op.kind in {OpKind.ATTENTION_DECODE, OpKind.ATTENTION_PREFILL, OpKind.INDEXER}]
    return _Sum(flop=sum(op.flop for op in mine), total=sum(op.total_bytes for op in mine))

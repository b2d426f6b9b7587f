"""Fit the efficiency curves and write ``efficiency.yaml``: ``python scripts/fit_efficiency.py [--kernels DIR] ...``.

Input: tables of measured kernels (``gemm.csv``, ``attention.csv``, ``moe.csv``, ``collectives.csv``,
``deepep_low_latency.csv``) and a YAML file of single operator timings. Output: one entry per measured accelerator, each
curve with the number of its points, the errors of the fit and the errors on shapes that were left out.

Method: few parameters per curve (fractions at fixed tokens and bytes, one fixed time, one sharpness), found by pattern
search on the mean absolute logarithm of predicted over measured, which outliers do not drive. Rows that beat the peaks
of the catalog (data still in cache) are left out, and so are rows that a host's launch time hides.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml
from numpy.typing import NDArray

from infcalc.catalog.gpus import gpu_from_mapping
from infcalc.files import read_yaml

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
DATE = "2026-11-29"
Floats = NDArray[np.float64]

GPUS = {
    "a100_sxm": "a100-sxm4-80gb",
    "h100_sxm": "h100-sxm5-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-sxm-180gb",
    "gb200": "gb200",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}
TITLES = {
    "NVIDIA A100 SXM 80GB": "a100-sxm4-80gb",
    "NVIDIA H100 SXM": "h100-sxm5-80gb",
    "NVIDIA H200 SXM": "h200-sxm-141gb",
    "NVIDIA B200 SXM": "b200-sxm-180gb",
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX PRO 6000 Blackwell Server": "rtx-pro-6000-blackwell-server",
    "Intel Arc Pro B60": "arc-pro-b60",
    "NVIDIA RTX 4090": "rtx-4090",
    "NVIDIA A40": "a40",
}
TABLES = "NVIDIA ai-dynamo/aiconfigurator @095f58a5 systems/data (Apache-2.0)"
OPS_SOURCES = {
    "aic": TABLES,
    "vidur": "microsoft/vidur data/profiling (MIT)",
    "llmservingsim": "casys-kaist/LLMServingSim profiler/perf",
}


@dataclass(frozen=True, kw_only=True)
class Points:
    """Measured kernels of one kind: what each did, how long it took, and the shape it belongs to."""

    tokens: Floats
    flop: Floats
    num_bytes: Floats
    seconds: Floats
    shapes: NDArray[np.str_]

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.seconds)

    def only(self, mask: NDArray[np.bool_]) -> Points:
        """Return the points under ``mask``."""
        return Points(
            tokens=self.tokens[mask],
            flop=self.flop[mask],
            num_bytes=self.num_bytes[mask],
            seconds=self.seconds[mask],
            shapes=self.shapes[mask],
        )


def points_of(rows: Iterable[tuple[float, float, float, float, str]]) -> Points:
    """Return points of rows (tokens, FLOP, bytes, seconds, shape)."""
    columns = list(zip(*rows, strict=True))
    numbers = [np.asarray(column, dtype=float) for column in columns[:4]]
    return Points(
        tokens=numbers[0], flop=numbers[1], num_bytes=numbers[2], seconds=numbers[3], shapes=np.asarray(columns[4])
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is fitted: the knots, which parameters stay fixed, and where the search starts."""

    token_knots: tuple[float, ...]
    byte_knots: tuple[float, ...]
    latency_s: float = 4e-6
    fixed_latency: bool = False
    compute_start: float = 0.5
    fixed_compute: bool = False
    bandwidth_start: float = 0.75
    fixed_bandwidth: bool = False
    roughness: float = 2e-3
    """What a bend of the fractions costs, against the mean error."""
    per_token_s: float = 0.0
    """Where the search for a fixed time per work item starts; 0 fits none."""
    max_latency_s: float = 60e-6
    min_sharpness: float = 2.0
    """1 where kernels of one launch do not overlap: some of them wait for memory while others compute."""


MIB = 2.0**20
MIN_LATENCY_S = 2e-6
"""No kernel starts and drains faster; data left in cache can make it look so."""
SHORTEST_PREFILL = 32
SHORTEST_CONTEXT = 128
MIN_SHAPES = 3
MIN_SIZES = 12
RANKS = (2, 4, 8)
FINEST_STEP = 2e-3
MOST_SCALED = 0.95
FEWEST_SCALED = 6
"""Fewer timings than this calibrate nothing: what was made of them is called modelled."""
MOST_SHARDS = 8
"""Experts cut into more parts are not served by anyone."""
MIN_POINTS = 40
"""Fewer rows than this that are free of launch time make no curve."""
GEMM = Plan(
    token_knots=(16, 64, 128, 256, 512, 1024, 4096, 16384), byte_knots=(4 * MIB, 32 * MIB, 128 * MIB, 1024 * MIB)
)
WEIGHT_ONLY = replace(GEMM, token_knots=(4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384))
"""Kernels for few tokens are others than those for many, which widen the weights first."""
PREFILL = Plan(token_knots=(64, 256, 1024, 4096, 16384), byte_knots=(32 * MIB,), latency_s=8e-6, compute_start=0.3)
DECODE = Plan(
    token_knots=(1,),
    byte_knots=(128 * MIB, 1024 * MIB),
    latency_s=9e-6,
    compute_start=0.5,
    fixed_compute=True,
    bandwidth_start=0.8,
    per_token_s=3e-8,
    roughness=2e-2,
)
MOE = Plan(
    token_knots=(2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    byte_knots=(32 * MIB, 256 * MIB, 2048 * MIB),
    latency_s=15e-6,
    compute_start=0.3,
)
"""Tiles are filled up to 16, 64 or 128 rows: meanwhile the time stands still, which takes a knot at each doubling."""
EVEN_MOE = replace(MOE, roughness=6e-3)
"""Few shapes were timed: what bends the curve must be worth it."""
SKEWED_MOE = replace(MOE, min_sharpness=1.0)
"""Where few experts get most tokens, theirs are computed while those of the others are only read: one after another."""
FEW_EXPERTS = 16
BALANCED = "balanced"
"""Name of even routing in the tables; the others draw the tokens of each expert from a power law."""

# Fractions, the fixed time and the sharpness of one curve


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A fitted curve."""

    token_knots: tuple[float, ...]
    compute: Floats
    byte_knots: tuple[float, ...]
    bandwidth: Floats
    latency_s: float
    sharpness: float
    per_token_s: float = 0.0

    def seconds(self, points: Points, peak: float, speed: float) -> Floats:
        """Return the time of each point, as ``infcalc.roofline.curves.kernel_s`` computes it."""
        share = np.interp(np.log2(points.tokens), np.log2(self.token_knots), self.compute)
        reach = np.interp(np.log2(points.num_bytes), np.log2(self.byte_knots), self.bandwidth)
        compute_s = points.flop / (peak * share)
        memory_s = points.num_bytes / (speed * reach)
        longer = np.maximum(compute_s, memory_s)
        ratio = np.minimum(compute_s, memory_s) / longer
        return (
            longer * (1 + ratio**self.sharpness) ** (1 / self.sharpness)
            + self.latency_s
            + points.tokens * self.per_token_s
        )


def lawful(fractions: Floats, knots: tuple[float, ...]) -> Floats:
    """Return fractions of at most 1 that grow no faster than the work."""
    out = np.clip(np.round(fractions, 4), 1e-3, 1.0)
    for number in range(1, len(knots)):
        width = math.log(knots[number] / knots[number - 1])
        out[number] = min(out[number], math.floor(out[number - 1] * (1 + width) * 1e4) / 1e4)
    return out


def curve_of(logs: Floats, plan: Plan) -> Curve:
    """Return the curve of a vector of logarithms: compute, bandwidth, latency, sharpness."""
    num_compute, num_bandwidth = len(plan.token_knots), len(plan.byte_knots)
    values = np.exp(logs)
    latency_s = min(max(float(values[-3]), MIN_LATENCY_S), plan.max_latency_s)
    return Curve(
        token_knots=plan.token_knots,
        compute=lawful(values[:num_compute].copy(), plan.token_knots),
        byte_knots=plan.byte_knots,
        bandwidth=lawful(values[num_compute : num_compute + num_bandwidth].copy(), plan.byte_knots),
        latency_s=round(latency_s, 9),
        sharpness=round(min(max(float(values[-2]), plan.min_sharpness), 8.0), 2),
        per_token_s=round(float(values[-1]), 11) if plan.per_token_s else 0.0,
    )


def search(cost: Callable[[Floats], float], start: Floats, free: Iterable[int]) -> Floats:
    """Return the vector that coordinate pattern search finds from ``start``, moving only the ``free`` places."""
    best, places = start.copy(), list(free)
    value = cost(best)
    steps = dict.fromkeys(places, 0.4)
    for _ in range(200):
        for place in places:
            for sign in (1, -1):
                trial = best.copy()
                trial[place] += sign * steps[place]
                found = cost(trial)
                if found < value - 1e-12:
                    best, value = trial, found
                    steps[place] *= 1.5
                    break
            else:
                steps[place] *= 0.5
        if max(steps.values()) < FINEST_STEP:
            break
    return best


def fit(
    points: Points, plan: Plan, *, peak: float, speed: float, start: Curve | None = None, hot: Points | None = None
) -> Curve:
    """Return the curve that comes closest to ``points``, and is not below those that a cache made fast (``hot``)."""
    num_compute, num_bandwidth = len(plan.token_knots), len(plan.byte_knots)
    if start is None:
        begin = (
            [plan.compute_start] * num_compute
            + [plan.bandwidth_start] * num_bandwidth
            + [plan.latency_s, 3.0, plan.per_token_s]
        )
    else:
        begin = [*start.compute, *start.bandwidth, start.latency_s, start.sharpness, start.per_token_s]
    logs = np.log(np.maximum(np.asarray(begin), 1e-12))
    measured = np.log(points.seconds)

    def cost(trial: Floats) -> float:
        predicted = curve_of(trial, plan).seconds(points, peak, speed)
        bends = np.diff(trial[:num_compute]), np.diff(trial[num_compute : num_compute + num_bandwidth])
        # Points that no measurement speaks for stay near their neighbours.
        rough = sum(float(np.abs(bend).sum()) for bend in bends)
        short = 0.0
        if hot is not None and len(hot):
            below = np.log(hot.seconds) - np.log(curve_of(trial, plan).seconds(hot, peak, speed))
            short = float(np.maximum(below, 0).mean())
        error = float(np.abs(np.log(predicted) - measured).mean())
        return error + short + plan.roughness * rough + 1e-4 * float(np.abs(trial - logs).sum())

    fixed = set()
    if plan.fixed_compute:
        fixed |= set(range(num_compute))
    if plan.fixed_bandwidth:
        fixed |= set(range(num_compute, num_compute + num_bandwidth))
    if plan.fixed_latency:
        fixed.add(len(logs) - 3)
    if not plan.per_token_s:
        fixed.add(len(logs) - 1)
    return curve_of(search(cost, logs, [place for place in range(len(logs)) if place not in fixed]), plan)


def errors(predicted: Floats, measured: Floats) -> Floats:
    """Return absolute relative errors."""
    return np.abs(predicted / measured - 1)


def held_out(
    points: Points, plan: Plan, *, peak: float, speed: float, start: Curve, hot: Points | None = None
) -> Floats:
    """Return the errors on shapes that the fit has not seen: five folds of whole shapes."""
    names = sorted(set(points.shapes.tolist()))
    if len(names) < MIN_SHAPES:
        return np.asarray([])
    found = []
    for fold in range(min(5, len(names))):
        out = np.isin(points.shapes, names[fold :: min(5, len(names))])
        some = None if hot is None else hot.only(~np.isin(hot.shapes, names[fold :: min(5, len(names))]))
        curve = fit(points.only(~out), plan, peak=peak, speed=speed, start=start, hot=some)
        rest = points.only(out)
        found.append(errors(curve.seconds(rest, peak, speed), rest.seconds))
    return np.concatenate(found)


def residual(seen: Floats, unseen: Floats) -> dict[str, float | int]:
    """Return the entry ``error`` of a curve."""
    entry: dict[str, float | int] = {
        "points": len(seen),
        "median": round(float(np.median(seen)), 3),
        "p90": round(float(np.quantile(seen, 0.9)), 3),
        "worst": round(float(seen.max()), 3),
    }
    if len(unseen):
        entry["held_out_median"] = round(float(np.median(unseen)), 3)
        entry["held_out_p90"] = round(float(np.quantile(unseen, 0.9)), 3)
    return entry


def physical(points: Points, peak: float, speed: float) -> Points:
    """Return the points that do not beat the peaks."""
    floor = np.maximum(points.flop / peak, points.num_bytes / speed)
    return points.only(points.seconds >= floor)


# Reading


def read(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of one table."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


WEIGHT_BYTES = {
    "bfloat16": 2.0,
    "int8_wo": 1.0,
    "int4_wo": 0.5 + 2 / 128,
    "sq": 1.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 16384,
    "nvfp4": 0.5 + 1 / 16,
    "w4a16_mxfp4": 0.5 + 1 / 32,
}
VARIANTS = {
    "bfloat16": ("bf16", "bf16"),
    "int8_wo": ("bf16_w8", "bf16"),
    "int4_wo": ("bf16_w4", "bf16"),
    "w4a16_mxfp4": ("bf16_w4", "bf16"),
    "sq": ("int8", "int8"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8"),
    "nvfp4": ("fp4", "fp4"),
}
"""Variant of the curve and the precision whose peak applies, by the name in the tables."""


def gemm_points(rows: Iterable[Mapping[str, Any]], dtype: str) -> Points:
    """Return matrix multiplications: weights once, 16-bit activations in and out."""
    width = WEIGHT_BYTES[dtype]
    found = []
    for row in rows:
        m, n, k = (float(row[key]) for key in ("m", "n", "k"))
        moved = n * k * width + 2 * m * (n + k)
        found.append((m, 2 * m * n * k, moved, float(row["latency_us"]) * 1e-6, f"{n:.0f}x{k:.0f}"))
    return points_of(found)


def attention_points(rows: Iterable[Mapping[str, Any]], kv_bytes: float, *, decode: bool) -> Points:
    """Return attention: of prefill the causal half of the pairs, of decode the cache read once."""
    found = []
    for row in rows:
        heads, kv_heads, dim, batch, length = (
            float(row[key]) for key in ("q_heads", "kv_heads", "head_dim", "batch", "tokens_per_seq")
        )
        shape = f"{heads:.0f}/{kv_heads:.0f}"
        seconds = float(row["latency_us"]) * 1e-6
        if decode:
            flop = 4 * batch * heads * dim * length
            moved = batch * (2 * kv_heads * dim * length * kv_bytes + 4 * heads * dim)
            found.append((batch * kv_heads, flop, moved, seconds, shape))
        else:
            flop = 2 * batch * heads * dim * length * (length + 1)
            moved = batch * length * (2 * kv_heads * dim * (kv_bytes + 2) + 4 * heads * dim)
            found.append((length, flop, moved, seconds, shape))
    return points_of(found)


def loads(distribution: str, tokens: float, experts: int, topk: int) -> Floats:
    """Return the tokens of each expert: even, or by the quantiles of the power law that the tables drew from."""
    total = tokens * topk
    if distribution == "balanced":
        each = np.full(experts, total // experts)
        each[: int(total % experts)] += 1
        return each
    power = float(distribution.rpartition("_")[2])
    low, high = (1.0, max(tokens * 0.8, 1.5)) if total > experts else (0.01, 2.0)
    ranks = (np.arange(experts) + 0.5) / experts
    edge = 1 - power
    drawn = ((high**edge - low**edge) * ranks + low**edge) ** (1 / edge)
    rounded = np.round(drawn / drawn.sum() * total)
    if not rounded.any():
        rounded[-topk:] = tokens
    return np.asarray(np.minimum(rounded, tokens))


def moe_points(rows: Iterable[Mapping[str, Any]], dtype: str) -> Points:
    """Return the experts of a layer on one rank: those touched are read, two matrices up and one down each."""
    width = WEIGHT_BYTES[dtype]
    found = []
    for row in rows:
        tokens, hidden, inner = float(row["num_tokens"]), float(row["hidden"]), float(row["inter"])
        topk, experts, shards = int(row["topk"]), int(row["experts"]), float(row["moe_tp"])
        touched = float((loads(row["distribution"], tokens, experts, topk) > 0).sum())
        inner /= shards
        flop = 6 * tokens * topk * hidden * inner
        moved = (
            touched * 3 * hidden * inner * width + tokens * 4 * hidden + tokens * topk * 2 * (3 * inner + 2 * hidden)
        )
        shape = f"{hidden:.0f}x{inner:.0f} {experts} {topk}"
        found.append((tokens * topk / max(touched, 1), flop, moved, float(row["latency_us"]) * 1e-6, shape))
    return points_of(found)


# Kernels


@dataclass(kw_only=True)
class Fitter:
    """Collects the entries of all accelerators."""

    kernels: Path
    ops: Path
    entries: dict[str, dict[str, Any]] = field(
        default_factory=lambda: defaultdict(lambda: {"kernels": defaultdict(dict)})
    )
    curves: dict[tuple[str, str, str], Curve] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the peaks; the catalog as a whole cannot be loaded before there is an efficiency.yaml."""
        entries = cast("dict[str, dict[str, object]]", read_yaml(str(ROOT / "gpus.yaml")))["gpus"]
        self.gpus = {name: gpu_from_mapping(name, entries[name], {}) for name in {*GPUS.values(), *TITLES.values()}}

    def peak(self, gpu: str, precision: str) -> float:
        """Return the peak of a precision."""
        found = self.gpus[gpu].peak(precision)
        if found is None:
            raise SystemExit(f"{gpu} states no peak for {precision}")
        return found

    def add(
        self,
        *,
        gpu: str,
        kind: str,
        variant: str,
        points: Points,
        plan: Plan,
        peak: float,
        source: str,
        start: Curve | None = None,
        hot: Points | None = None,
    ) -> None:
        """Fit one curve and enter it."""
        speed = self.gpus[gpu].bandwidth_bytes_per_s
        given = len(points)
        points = physical(points, peak, speed)
        if not plan.fixed_latency:
            # The fixed time is part of every measurement, of the fastest ones too.
            floor = np.maximum(points.flop / peak, points.num_bytes / speed)
            most = float(np.quantile(points.seconds - floor, 0.05)) if len(points) > MIN_POINTS else plan.max_latency_s
            plan = replace(plan, max_latency_s=max(MIN_LATENCY_S, most), latency_s=max(MIN_LATENCY_S, 0.8 * most))
        curve = fit(points, plan, peak=peak, speed=speed, start=start, hot=hot)
        seen = errors(curve.seconds(points, peak, speed), points.seconds)
        self.curves[gpu, kind, variant] = curve
        left_out = given - len(points)
        self.entries[gpu]["kernels"][kind][variant] = written(curve) | {
            "error": residual(seen, held_out(points, plan, peak=peak, speed=speed, start=curve, hot=hot)),
            "source": source + (f"; {left_out} rows above the peaks left out" if left_out else ""),
        }

    def gemm(self) -> None:
        """Fit matrix multiplications; block-scaled fp8 only where the host's launch time does not hide the kernel."""
        tables = grouped(read(self.kernels, "gemm.csv"), ("system", "dtype", "engine"))
        for (system, dtype), engines in by_engine(tables).items():
            gpu = GPUS[system]
            variant, precision = VARIANTS[dtype]
            rows, engine = chosen(engines, dtype)
            points = gemm_points(rows, dtype)
            plan = WEIGHT_ONLY if "_w" in variant else GEMM
            peak, start = self.peak(gpu, precision), None
            source = f"{TABLES}, {engine} gemm"
            if dtype == "fp8_block" and not engine.startswith("trtllm"):
                launch = float(np.quantile(points.seconds, 0.05))
                points = points.only(points.seconds > 2.0 * launch)
                start = self.curves[gpu, "gemm", "fp8"]
                plan = replace(GEMM, fixed_latency=True, fixed_bandwidth=True)
                source += (
                    f"; only rows above twice the launch time ({launch * 1e6:.0f} us), fixed time and bandwidth as fp8"
                )
                if len(points) < MIN_POINTS:
                    continue
            self.add(
                gpu=gpu,
                kind="gemm",
                variant=variant,
                points=points,
                plan=plan,
                peak=peak,
                source=source,
                start=start,
            )

    def attention(self) -> None:
        """Fit attention of vLLM."""
        tables = grouped(read(self.kernels, "attention.csv"), ("system", "phase", "kv_dtype", "engine"))
        for (system, phase, kv_dtype, engine), rows in tables.items():
            gpu, decode = GPUS[system], phase == "generation"
            points = attention_points(rows, 1.0 if kv_dtype == "fp8" else 2.0, decode=decode)
            source = f"{TABLES}, {engine} {phase} attention"
            if decode:
                long = [row for row in rows if int(row["tokens_per_seq"]) >= SHORTEST_CONTEXT]
                points = attention_points(long, 1.0 if kv_dtype == "fp8" else 2.0, decode=True)
                cold = self.cold(gpu, points)
                points, hot = points.only(cold), points.only(~cold)
                source += f"; {len(hot)} rows that fit into the cache are lower bounds only: a step reads them cold"
            else:
                points, hot = points.only(points.tokens >= SHORTEST_PREFILL), None
            self.add(
                gpu=gpu,
                kind="attention_decode" if decode else "attention_prefill",
                variant="fp8" if kv_dtype == "fp8" else "bf16",
                points=points,
                plan=DECODE if decode else PREFILL,
                peak=self.peak(gpu, "bf16"),
                source=source,
                hot=hot,
            )

    def cold(self, gpu: str, points: Points) -> NDArray[np.bool_]:
        """Tell which points cannot have been served from the cache, or move so little that only fixed time counts."""
        cache = 1.5 * (self.gpus[gpu].cache_bytes or 50 * MIB)
        return (points.num_bytes > cache) | (points.num_bytes < 2 * MIB)

    def moe(self) -> None:
        """Fit grouped expert multiplications of one rank that holds all experts.

        A model with up to :data:`FEW_EXPERTS` experts routes nearly evenly, one of many experts by a power law. A curve
        is fitted to the rows of that routing, and of that many experts; without such rows, to what there is.
        """
        rows = [
            row for row in read(self.kernels, "moe.csv") if row["moe_ep"] == "1" and int(row["moe_tp"]) <= MOST_SHARDS
        ]
        for (system, dtype, engine), table in grouped(rows, ("system", "dtype", "engine")).items():
            gpu = GPUS[system]
            variant, precision = VARIANTS[dtype]
            if dtype == "fp8" and system.startswith("h"):
                # Three to four times the time of block-scaled fp8, 3x that of bf16: kernels without tuned settings.
                continue
            for kind, plan, is_few in (("moe", SKEWED_MOE, False), ("moe_even", EVEN_MOE, True)):
                mine = [row for row in table if (int(row["experts"]) <= FEW_EXPERTS) is is_few]
                routed = [row for row in mine if (row["distribution"] == BALANCED) is is_few]
                if mine:
                    points = moe_points(routed or mine, dtype)
                    # No knot where nothing was measured: the curve goes on as it was.
                    knots = tuple(knot for knot in plan.token_knots if knot <= points.tokens.max())
                    self.add(
                        gpu=gpu,
                        kind=kind,
                        variant=variant,
                        points=points,
                        plan=replace(plan, token_knots=knots),
                        peak=self.peak(gpu, precision),
                        source=f"{TABLES}, {engine} moe, moe_ep 1, {'up to' if is_few else 'more than'} {FEW_EXPERTS} "
                        f"experts, {'even' if routed and is_few else 'power-law'} routing",
                    )

    def plain_fp8_moe(self) -> None:
        """Enter experts in fp8 with one scale per tensor on Hopper, whose tables are of kernels without tuned settings.

        The curve of 16 bit, its compute times the ratio of what gemm reaches of its peaks in fp8 and in 16 bit.
        """
        for gpu in ("h100-sxm5-80gb", "h200-sxm-141gb"):
            fp8, wide = self.curves[gpu, "gemm", "fp8"], self.curves[gpu, "gemm", "bf16"]
            for kind in ("moe", "moe_even"):
                base = self.curves[gpu, kind, "bf16"]
                knots = np.log2(base.token_knots)
                shares = [np.interp(knots, np.log2(curve.token_knots), curve.compute) for curve in (fp8, wide)]
                curve = replace(base, compute=lawful(base.compute * shares[0] / shares[1], base.token_knots))
                self.curves[gpu, kind, "fp8"] = curve
                self.entries[gpu]["kernels"][kind]["fp8"] = written(curve) | {
                    "basis": "modelled",
                    "source": "experts in 16 bit, compute by the ratio of gemm in fp8 to gemm in bf16",
                }

    def scaled(self) -> None:
        """Fit the parts with a few single timings: a relative's curve, its fractions and fixed time scaled."""
        rows = yaml.safe_load(self.ops.read_text(encoding="utf-8"))["rows"]
        for gpu, relative, kinds in SCALED:
            for kind in kinds:
                found = [row for row in rows if TITLES.get(row["gpu"]) == gpu and row["op"] == OP_NAMES[kind]]
                for variant, some in by_variant(kind, found).items():
                    self.scale(gpu, relative, kind, variant, some)

    def scale(self, gpu: str, relative: str, kind: str, variant: str, rows: list[dict[str, Any]]) -> None:
        """Fit three factors to one kind of rows and enter the curve."""
        given = [row | {"latency_us": row["us"]} for row in rows]
        if kind == "gemm":
            points = gemm_points(given, "bfloat16")
        else:
            named = [row | {"q_heads": row["heads"], "tokens_per_seq": row["seq"]} for row in given]
            decode = kind == "attention_decode"
            points = attention_points(named, 1.0 if variant == "fp8" else 2.0, decode=decode)
            if decode:
                points = points.only(self.cold(gpu, points))
        peak, speed = self.peak(gpu, "bf16"), self.gpus[gpu].bandwidth_bytes_per_s
        points = physical(points, peak, speed)
        base = self.curves.get((relative, kind, variant)) or self.curves[relative, kind, "bf16"]
        measured = np.log(points.seconds)

        def made(logs: Floats) -> Curve:
            compute, bandwidth, latency = (float(value) for value in np.exp(logs))
            return replace(
                base,
                compute=lawful(base.compute * compute, base.token_knots),
                bandwidth=lawful(np.minimum(base.bandwidth * bandwidth, MOST_SCALED), base.byte_knots),
                latency_s=max(MIN_LATENCY_S, round(base.latency_s * latency, 9)),
            )

        def cost(logs: Floats) -> float:
            predicted = made(logs).seconds(points, peak, speed)
            return float(np.abs(np.log(predicted) - measured).mean()) + 1e-2 * float(np.abs(logs).sum())

        curve = made(search(cost, np.zeros(3), range(3)))
        self.curves[gpu, kind, variant] = curve
        origins = sorted({OPS_SOURCES[row["src"].partition(":")[0]] + f" ({row['src']})" for row in rows})
        few = {"basis": "modelled"} if len(points) < FEWEST_SCALED else {}
        self.entries[gpu]["kernels"][kind][variant] = (
            written(curve)
            | few
            | {
                "error": residual(errors(curve.seconds(points, peak, speed), points.seconds), np.asarray([])),
                "source": f"{'; '.join(origins)}: three factors on the curve of {relative}",
            }
        )

    def collectives(self) -> None:
        """Fit fixed time and speed of each collective, library and number of ranks."""
        tables = grouped(read(self.kernels, "collectives.csv"), ("system", "impl", "op", "num_gpus"))
        for (system, impl, op, ranks), rows in tables.items():
            if impl in IMPLS:
                data = [(float(row["bytes"]), float(row["latency_us"]) * 1e-6) for row in rows]
                self.collective(
                    GPUS[system],
                    kind=OPS[op],
                    library=IMPLS[impl],
                    ranks=int(ranks),
                    data=data,
                    source=f"{TABLES}, {impl} {op}",
                )
        rows = yaml.safe_load(self.ops.read_text(encoding="utf-8"))["rows"]
        pro = [row for row in rows if row["op"] == "all_reduce" and "PRO 6000" in row["gpu"]]
        for ranks in sorted({row["ranks"] for row in pro}):
            data = [(float(row["bytes"]), row["us"] * 1e-6) for row in pro if row["ranks"] == ranks]
            gpu = TITLES["NVIDIA RTX PRO 6000 Blackwell Server"]
            self.collective(
                gpu,
                kind="all_reduce",
                library="tensorrt-llm",
                ranks=ranks,
                data=data,
                source=f"{TABLES} (aic:trtllm/1.3.0rc10)",
            )
        groups = grouped(read(self.kernels, "deepep_low_latency.csv"), ("system", "nodes", "hidden"))
        for (system, nodes, hidden), rows in groups.items():
            if system not in GPUS:
                continue
            gpu = GPUS[system]
            data = []
            for row in rows:
                elements = float(row["tokens_per_rank"]) * float(row["topk"]) * float(hidden)
                data.append((elements * (1 + 4 / 128), float(row["dispatch_us"]) * 1e-6))
                data.append((elements * 2, float(row["combine_us"]) * 1e-6))
            source = f"{TABLES}, DeepEP low latency, dispatch in fp8 and combine in 16 bit, {nodes} machines of 8"
            self.collective(gpu, kind="all_to_all", library="deepep", ranks=8 * int(nodes), data=data, source=source)

    def collective(
        self, gpu: str, *, kind: str, library: str, ranks: int, data: list[tuple[float, float]], source: str
    ) -> None:
        """Fit one collective and enter it."""
        sizes, seconds = (np.asarray(column) for column in zip(*sorted(data), strict=True))
        num_lines = 3 if len(sizes) >= MIN_SIZES else 2
        kinds = ["ring"] * num_lines if kind == "all_reduce" else ["shift"] * num_lines
        if kind == "all_reduce" and library != "nccl":
            kinds[0] = "one_shot"
        factors = np.asarray([TRAFFIC[name](ranks) for name in kinds])
        lines = fit_lines(sizes, seconds, factors)
        seen = errors(line_seconds(lines, sizes, factors), seconds)
        folds = []
        for fold in range(4):
            out = np.arange(len(sizes)) % 4 == fold
            if len(sizes) >= MIN_SIZES:
                some = fit_lines(sizes[~out], seconds[~out], factors)
                folds.append(errors(line_seconds(some, sizes[out], factors), seconds[out]))
        self.entries[gpu].setdefault("collectives", []).append(
            {
                "kind": kind,
                "library": library,
                "ranks": ranks,
                "algorithms": [
                    {"kind": name, "latency": f"{float(alpha) * 1e6:.2f} us", "speed": f"{float(speed) / 1e9:.4g} GB/s"}
                    for name, (alpha, speed) in zip(kinds, lines, strict=True)
                ],
                **({"basis": "modelled"} if len(sizes) < FEWEST_SCALED else {}),
                "error": residual(seen, np.concatenate(folds) if folds else np.asarray([])),
                "source": source,
            }
        )

    def over_pcie(self) -> None:
        """Replace what more than two ranks took over PCIe in one machine by a share of what two take.

        See :data:`PCIE_SHARES`; the fixed times grow like those that were measured.
        """
        shapes = self.entries["l40s"]["collectives"]
        pairs = {shape["kind"]: shape for shape in shapes if (shape["library"], shape["ranks"]) == ("nccl", min(RANKS))}
        for number, shape in enumerate(shapes):
            if (ranks := shape["ranks"]) > min(RANKS):
                share, longer = PCIE_SHARES[ranks]
                lines = [
                    {
                        "kind": line["kind"],
                        "latency": f"{longer * float(line['latency'].split()[0]):.2f} us",
                        "speed": f"{share * float(line['speed'].split()[0]):.4g} GB/s",
                    }
                    for line in pairs[shape["kind"]]["algorithms"]
                ]
                shapes[number] = {
                    "kind": shape["kind"],
                    "library": shape["library"],
                    "ranks": ranks,
                    "algorithms": lines,
                    "basis": "modelled",
                    "source": f"{share:.0%} of the speed of two ranks: runs of whole models on four kinds of cards",
                }

    def borrow(self) -> None:
        """Enter curves of relatives where a kind was not measured, and say so."""
        for gpu, relative, kind, variants in BORROWED:
            for variant in variants:
                lent = self.entries[relative]["kernels"][kind][variant]
                kept = {key: value for key, value in lent.items() if key not in ("error", "source", "basis")}
                self.entries[gpu]["kernels"][kind].setdefault(
                    variant, kept | {"basis": "modelled", "source": f"not measured: as on {relative}"}
                )

        lent_shapes = self.entries["l40s"]["collectives"]
        pro = self.entries["rtx-pro-6000-blackwell-server"]["collectives"]
        for shape in lent_shapes:
            if shape["library"] == "nccl" or (shape["library"] == "tensorrt-llm" and shape["ranks"] != min(RANKS)):
                kept = {key: value for key, value in shape.items() if key not in ("error", "source")}
                pro.append(kept | {"basis": "modelled", "source": "not measured: as on l40s"})

    def document(self) -> dict[str, Any]:
        """Return the whole file."""
        entries: dict[str, Any] = {}
        for gpu, aliases in FAMILIES.items():
            found = self.entries[gpu]
            entry: dict[str, Any] = {"measured_on": [gpu], "aliases": aliases}
            entry["kernels"] = {kind: dict(found["kernels"][kind]) for kind in KINDS if found["kernels"].get(kind)}
            link = self.gpus[gpu].scale_up
            if link is not None and found.get("collectives"):
                found["collectives"].append(send(0.8 * link.bytes_per_s))
            if found.get("collectives"):
                speed = link.bytes_per_s if link is not None else self.gpus[gpu].pcie_bytes_per_s or 0.0
                entry["link"] = f"{speed / 1e9:.4g} GB/s"
                entry["collectives"] = found["collectives"]
            if gpu in NETWORKS:
                entry["network"] = NETWORKS[gpu]
                entry["network_latency"] = "12 us"
            entries[gpu] = entry | {
                "source": "fitted by scripts/fit_efficiency.py; each curve names its table",
                "date": DATE,
            }
        return {"efficiencies": entries | OTHERS}


PCIE_SHARES = {4: (0.7, 2.0), 8: (0.6, 3.5)}
"""Of the speed that two ranks reach over PCIe, the share that more reach, and how much longer the fixed time is.

The one machine whose collectives were timed reaches 26 % with 4 and 7 % with 8 ranks (its ranks cross sockets).
Published runs of whole models with 4 and 8 ranks on L40S, RTX A6000, V100S and RTX 4090 cards, of three sources, are 2
to 8 times as fast as that would let them be: they agree best with 60 to 80 %.
"""
OP_NAMES = {"gemm": "gemm", "attention_prefill": "attn_prefill", "attention_decode": "attn_decode"}
SCALED = (
    ("rtx-pro-6000-blackwell-server", "l40s", ("attention_prefill", "attention_decode")),
    ("rtx-4090", "l40s", ("gemm", "attention_prefill", "attention_decode")),
    ("a40", "a100-sxm4-80gb", ("gemm",)),
    ("arc-pro-b60", "a100-sxm4-80gb", ("gemm",)),
)
"""Parts with single timings only, the relative whose curve is scaled, and the kinds."""


def by_variant(kind: str, rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return rows by the variant of their curve."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found["fp8" if row["dtype"] == "fp8" and kind != "gemm" else "bf16"].append(row)
    return found


IMPLS = {"nccl": "nccl", "vllm_graph": "vllm", "trtllm": "tensorrt-llm"}
OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
TRAFFIC: dict[str, Callable[[int], float]] = {
    "one_shot": lambda ranks: ranks - 1,
    "ring": lambda ranks: 2 * (ranks - 1) / ranks,
    "shift": lambda ranks: (ranks - 1) / ranks,
}


def line_seconds(lines: Floats, sizes: Floats, factors: Floats) -> Floats:
    """Return the time of the fastest line at each size."""
    each = lines[:, :1] + factors[:, None] * sizes[None, :] / lines[:, 1:]
    return np.asarray(each.min(axis=0))


def fit_lines(sizes: Floats, seconds: Floats, factors: Floats) -> Floats:
    """Return (fixed time, bytes/s) of each line, for sizes in rising order."""
    parts = np.array_split(np.arange(len(sizes)), len(factors))
    begin = []
    for part, factor in zip(parts, factors, strict=True):
        alpha = float(seconds[part].min()) * (0.95 if part[0] == 0 else 0.5)
        begin += [alpha, float(factor * sizes[part[-1]] / max(seconds[part[-1]] - alpha, 1e-7))]
    measured = np.log(seconds)

    def cost(logs: Floats) -> float:
        lines = np.exp(logs).reshape(-1, 2)
        return float(np.abs(np.log(line_seconds(lines, sizes, factors)) - measured).mean())

    found = np.exp(search(cost, np.log(np.asarray(begin)), range(len(begin)))).reshape(-1, 2)
    return np.asarray(np.maximum(found, [1e-8, 1e6]))


def send(bytes_per_s: float) -> dict[str, Any]:
    """Return the entry of a send from one accelerator to another."""
    return {
        "kind": "send",
        "library": "nccl",
        "ranks": 2,
        "algorithms": [{"kind": "direct", "latency": "10 us", "speed": f"{bytes_per_s / 1e9:.4g} GB/s"}],
        "basis": "modelled",
        "source": "aiconfigurator's general figures: 10 us, 80 % of the link; not measured",
    }


KINDS = ("gemm", "moe", "moe_even", "attention_prefill", "attention_decode", "elementwise")
BORROWED = (
    ("h100-sxm5-80gb", "h200-sxm-141gb", "gemm", ("bf16_w8", "bf16_w4", "int8")),
    ("gb200", "b200-sxm-180gb", "attention_prefill", ("bf16", "fp8")),
    ("gb200", "b200-sxm-180gb", "attention_decode", ("bf16", "fp8")),
    ("gb200", "b200-sxm-180gb", "moe", ("bf16", "fp8", "fp8_block", "fp4", "bf16_w4")),
    ("gb200", "b200-sxm-180gb", "moe_even", ("bf16", "fp8", "fp8_block", "fp4")),
    ("a100-sxm4-80gb", "h100-sxm5-80gb", "moe", ("bf16_w4",)),
    ("l40s", "h100-sxm5-80gb", "moe", ("bf16", "fp8", "fp8_block", "bf16_w4")),
    ("l40s", "h100-sxm5-80gb", "moe_even", ("bf16", "fp8", "fp8_block")),
    ("rtx-pro-6000-blackwell-server", "l40s", "gemm", ("bf16_w8", "bf16_w4")),
    ("rtx-pro-6000-blackwell-server", "h100-sxm5-80gb", "moe", ("bf16", "fp8", "fp8_block", "bf16_w4")),
    ("rtx-pro-6000-blackwell-server", "h100-sxm5-80gb", "moe_even", ("bf16", "fp8", "fp8_block")),
    ("rtx-pro-6000-blackwell-server", "b200-sxm-180gb", "moe", ("fp4",)),
    ("rtx-pro-6000-blackwell-server", "b200-sxm-180gb", "moe_even", ("fp4",)),
    ("rtx-4090", "l40s", "gemm", ("bf16_w8", "bf16_w4", "fp8", "fp8_block", "int8")),
    ("rtx-4090", "l40s", "attention_decode", ("fp8",)),
    ("rtx-4090", "h100-sxm5-80gb", "moe", ("bf16", "fp8", "fp8_block", "bf16_w4")),
    ("rtx-4090", "h100-sxm5-80gb", "moe_even", ("bf16", "fp8", "fp8_block")),
    ("a40", "a100-sxm4-80gb", "gemm", ("bf16_w8", "bf16_w4", "int8")),
    ("a40", "a100-sxm4-80gb", "attention_prefill", ("bf16",)),
    ("a40", "a100-sxm4-80gb", "attention_decode", ("bf16",)),
    ("a40", "a100-sxm4-80gb", "moe", ("bf16",)),
    ("a40", "a100-sxm4-80gb", "moe_even", ("bf16",)),
)
"""Part, the relative that lends, kind and variants."""

FAMILIES = {
    "a100-sxm4-80gb": ["Ampere GA100", "NVLink3"],
    "h100-sxm5-80gb": ["Hopper GH100", "Hopper GH100 + Grace", "Hopper", "NVLink4"],
    "h200-sxm-141gb": ["h200-nvl-141gb", "gh200-144gb", "h20-96gb", "h20-141gb"],
    "b200-sxm-180gb": ["Blackwell GB100", "Blackwell Ultra", "Blackwell", "Rubin", "NVLink5"],
    "gb200": ["Blackwell GB100 + Grace", "Blackwell Ultra + Grace"],
    "l40s": ["Ada AD102", "Ada AD104", "Ada", "NVIDIA", "PCIe"],
    "rtx-pro-6000-blackwell-server": [
        "Blackwell GB202",
        "Blackwell GB203",
        "Blackwell (integrated)",
        "Grace Blackwell GB10",
    ],
    "rtx-4090": ["rtx-4090d", "rtx-4060", "rtx-4080", "rtx-4000-ada"],
    "a40": ["Ampere GA102", "Ampere GA104", "Ampere GA107", "Ampere (integrated)", "Ampere"],
    "arc-pro-b60": ["Battlemage Xe2"],
}
"""Names of parts and architectures, and of links, that the curves of a measured part serve where nothing nearer was."""

NETWORKS = {
    "a100-sxm4-80gb": "25 GB/s",
    "h100-sxm5-80gb": "50 GB/s",
    "h200-sxm-141gb": "50 GB/s",
    "b200-sxm-180gb": "100 GB/s",
    "gb200": "100 GB/s",
}
"""Per accelerator and direction: one 200, 400 or 800 Gb/s adapter each, as machines of these parts have."""


def assumed(aliases: list[str], figures: Mapping[str, tuple[float, float, float]], source: str) -> dict[str, Any]:
    """Return an entry that no kernel was measured for: flat fractions (compute, bandwidth) and fixed time in us."""
    kernels: dict[str, Any] = {}
    for kind, (compute, bandwidth, latency) in figures.items():
        shape = {
            "compute": compute,
            "bandwidth": bandwidth,
            "latency": f"{latency:g} us",
            "sharpness": 4,
            "basis": "uncalibrated",
        }
        kernels[kind] = {"any" if kind == "elementwise" else "bf16": shape}
    return {"measured_on": [], "aliases": aliases, "kernels": kernels, "source": source, "date": DATE}


WHOLE = "no kernel measured; from published whole-model figures: "
OTHERS = {
    "volta-turing": assumed(
        ["Volta GV100", "Volta", "Turing TU104", "Turing TU102", "Turing"],
        {
            "gemm": (0.45, 0.5, 8),
            "moe": (0.3, 0.45, 35),
            "attention_prefill": (0.3, 0.5, 15),
            "attention_decode": (0.5, 0.5, 15),
        },
        WHOLE + "V100S decode 0.41 of bandwidth and prefill 0.41 of peak (8B, 16 bit), overheads included",
    ),
    "amd-cdna": assumed(
        ["CDNA2", "CDNA3", "CDNA4", "CDNA5", "AMD", "mi300x"],
        {
            "gemm": (0.5, 0.6, 8),
            "moe": (0.3, 0.5, 35),
            "attention_prefill": (0.35, 0.5, 15),
            "attention_decode": (0.5, 0.6, 15),
        },
        WHOLE + "MI300X decode 0.3 to 0.5 of bandwidth at batch 1, 0.18 to 0.41 in fp8 TP 8; MI250 0.27 to 0.30",
    ),
    "apple": assumed(
        ["Apple silicon", "Apple"],
        {
            "gemm": (0.6, 0.8, 5),
            "moe": (0.4, 0.7, 20),
            "attention_prefill": (0.4, 0.6, 10),
            "attention_decode": (0.5, 0.7, 10),
        },
        "no kernel measured and no whole-model figure read: those of consumer parts in llama.cpp, 0.77 to 0.87",
    ),
    "gaudi": assumed(
        ["Gaudi 2", "Gaudi 3", "Gaudi"],
        {
            "gemm": (0.55, 0.85, 6),
            "moe": (0.35, 0.6, 30),
            "attention_prefill": (0.4, 0.6, 15),
            "attention_decode": (0.5, 0.7, 12),
        },
        WHOLE + "Gaudi 2 decode 0.74 to 0.83 of bandwidth at batch 1, 16 bit",
    ),
    "any": assumed(
        [],
        {
            "gemm": (0.6, 0.7, 6),
            "moe": (0.35, 0.6, 30),
            "attention_prefill": (0.4, 0.6, 12),
            "attention_decode": (0.5, 0.7, 12),
            "elementwise": (1.0, 0.7, 2),
        },
        "no measurement: the lower half of what measured parts reach; streaming kernels 70 % of bandwidth",
    ),
}


def written(curve: Curve) -> dict[str, Any]:
    """Return the curve as efficiency.yaml writes it."""
    bandwidth = [
        [size(knot), round(float(value), 4)] for knot, value in zip(curve.byte_knots, curve.bandwidth, strict=True)
    ]
    compute = [
        [int(knot), round(float(value), 4)] for knot, value in zip(curve.token_knots, curve.compute, strict=True)
    ]
    return {
        "compute": compute if len(compute) > 1 else compute[0][1],
        "bandwidth": bandwidth if len(bandwidth) > 1 else bandwidth[0][1],
        "latency": f"{curve.latency_s * 1e6:.2f} us",
        **({"latency_per_token": f"{curve.per_token_s * 1e6:.4f} us"} if curve.per_token_s else {}),
        "sharpness": curve.sharpness,
    }


HEAD = """\
# Efficiency curves of accelerators: what share of its peaks a kernel reaches, and what a collective takes.
# Written by scripts/fit_efficiency.py; docs/efficiency.md shows it as a table and says how it was fitted.
#
# measured_on  parts whose measurements were fitted; every other part that an entry serves is uncalibrated.
# aliases      parts, architectures, links and vendors that the entry serves; the nearest one counts.
# compute      fraction of the dense peak at a number of tokens, linear in log2 between the points.
# bandwidth    fraction of the memory bandwidth at a number of bytes, likewise.
# latency      the kernel's own fixed time; latency_per_token: per sequence and KV head of decode attention.
# sharpness    exponent of the smooth maximum of compute and memory time.
# error        absolute relative errors of the fit; held_out on shapes that it had not seen.
# collectives  the fastest of some lines: fixed time, and bytes/s that pass one link in one direction.
"""


def emit(document: Mapping[str, Any]) -> str:
    """Return the document as YAML, one curve or collective per block, its parts on one line each."""
    lines = []
    for section, entries in document.items():
        lines.append(f"{section}:")
        for name, entry in entries.items():
            lines.append(f"  {name}:")
            for key, value in entry.items():
                if key == "kernels":
                    lines.append("    kernels:")
                    for kind, variants in value.items():
                        lines.append(f"      {kind}:")
                        for variant, shape in variants.items():
                            lines.append(f"        {variant}:")
                            lines += [f"          {part}: {flow(item)}" for part, item in shape.items()]
                elif key == "collectives":
                    lines.append("    collectives:")
                    for shape in value:
                        marks = ["-", *[" "] * len(shape)]
                        lines += [
                            f"      {mark} {part}: {flow(item)}"
                            for mark, (part, item) in zip(marks, shape.items(), strict=False)
                        ]
                else:
                    lines.append(f"    {key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def size(num_bytes: float) -> str:
    """Return bytes with the unit that makes them a small whole number."""
    mib = num_bytes / MIB
    return f"{mib:.0f} MiB" if mib >= 1 else f"{num_bytes / 1024:.0f} KiB"


def grouped(rows: Iterable[dict[str, str]], keys: tuple[str, ...]) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Return rows by the values of ``keys``."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def by_engine(
    tables: Mapping[tuple[str, ...], list[dict[str, str]]],
) -> dict[tuple[str, str], dict[str, list[dict[str, str]]]]:
    """Return tables by system and type, then by engine."""
    found: dict[tuple[str, str], dict[str, list[dict[str, str]]]] = defaultdict(dict)
    for (system, dtype, engine), rows in tables.items():
        found[system, dtype][engine] = rows
    # Block-scaled tables borrow the fixed time of the plain ones.
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1] == "fp8_block")))


def chosen(engines: Mapping[str, list[dict[str, str]]], dtype: str) -> tuple[list[dict[str, str]], str]:
    """Return the table to fit: vLLM's, except where only its host's launch time was measured."""
    prefer = "trtllm" if dtype == "fp8_block" else "vllm"
    engine = next((name for name in engines if name.startswith(prefer)), next(iter(engines)))
    return engines[engine], engine


def main() -> None:
    """Fit everything and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=Path, default=SHARED / "data" / "kernels")
    parser.add_argument("--ops", type=Path, default=SHARED / "validation" / "op_measured.yaml")
    parser.add_argument("--output", type=Path, default=ROOT / "efficiency.yaml")
    given = parser.parse_args()
    fitter = Fitter(kernels=given.kernels, ops=given.ops)
    fitter.gemm()
    fitter.attention()
    fitter.moe()
    fitter.plain_fp8_moe()
    fitter.scaled()
    fitter.collectives()
    fitter.over_pcie()
    fitter.borrow()
    given.output.write_text(HEAD + emit(fitter.document()), encoding="utf-8")


if __name__ == "__main__":
    main()

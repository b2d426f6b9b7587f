"""The laboratory: its arithmetic, on clocks that tick as a test wants them to. No test depends on how fast anything is.

The only exception has a guard so wide that it catches a wrong unit, and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc import files
from infcalc.api.answer import Answer
from infcalc.api.lab import QUICK_COUNT_TOKENS, LabAsk, lab
from infcalc.api.lab_curves import Timed, admissible, bandwidth_bytes_per_s, decode_attention, entry, peak_flop_per_s
from infcalc.api.lab_machine import Computer, this_computer
from infcalc.api.lab_measure import measure
from infcalc.api.lab_models import SIZES, chosen_model, grouped_attention, llama, weight_bytes
from infcalc.api.lab_probes import Family, Probe, probes
from infcalc.api.lab_report import LabResult, LabRow
from infcalc.api.lab_timing import Course, Instruments, is_spent, spread, timed_s
from infcalc.catalog.gpus import gpu_from_mapping
from infcalc.errors import DoesNotFit, UnknownName, UsageError
from infcalc.roofline.clock import StepClock
from infcalc.roofline.curves import curves_of, kernel_s
from infcalc.spec.efficiency import broken_fractions
from infcalc.spec.kv import KV_FORMATS
from infcalc.units import GIB, MIB

COMPUTER = Computer(title="Some CPU", architecture="abc", num_threads=3, memory_bytes=16 * GIB, cache_bytes=32 * MIB)
TINY = LabAsk(hidden_size=64, num_layers=1, count_tokens=40, context_tokens=20, batches=(2, 1), repeat=2, quick=True)


class Ticking:
    """A clock that moves by ``tick_s`` whenever it is looked at; progress may change how far."""

    def __init__(self, changes: dict[str, float] | None = None) -> None:
        self.now_s = 0.0
        self.tick_s = 0.001
        self.changes = changes or {}
        self.told: list[str] = []

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def tell(self, text: str) -> None:
        self.told.append(text)
        for start, tick_s in self.changes.items():
            if text.startswith(start):
                self.tick_s = tick_s

    @property
    def instruments(self) -> Instruments:
        return Instruments(clock=self, today="2030-01-02", progress=self.tell)


def row(answer: Answer[LabResult], case: str, batch: int = 1) -> LabRow:
    (found,) = [one for one in answer.result.rows if (one.case, one.batch) == (case, batch)]
    return found


@pytest.fixture(scope="module")
def tiny() -> Answer[LabResult]:
    return lab(TINY, Ticking().instruments, computer=COMPUTER)


# What a run holds


def test_every_case_is_measured_and_predicted(tiny: Answer[LabResult]) -> None:
    assert [(one.case, one.batch) for one in tiny.result.rows] == [
        ("decode, contiguous cache", 2),
        ("decode, paged cache", 2),
        ("decode, contiguous cache", 1),
        ("decode, paged cache", 1),
        ("decode, no cache", 1),
        ("prefill, prefix cache off", 1),
        ("prefill, prefix cache on", 1),
    ]
    for one in tiny.result.rows:
        # Each step is looked at once before and once after: one tick.
        assert one.measured_s == pytest.approx(0.001)
        assert one.measured_s_low == pytest.approx(one.measured_s)
        assert one.predicted_s > one.ideal_s > 0
        assert one.error_fraction == pytest.approx((one.predicted_s - one.measured_s) / one.measured_s)
        assert one.num_steps >= 2


def test_steps_hold_what_their_plans_say(tiny: Answer[LabResult]) -> None:
    # Two steps are left out: the prompt's and the first decode. Four follow, the first with 21 tokens cached.
    assert (row(tiny, "decode, contiguous cache").context_tokens, row(tiny, "decode, no cache").new_tokens) == (
        22.5,
        23.5,
    )
    # A prompt of 20 tokens and a tail of 32; one full block of 16 is shared.
    assert row(tiny, "prefill, prefix cache off").new_tokens == 52
    assert row(tiny, "prefill, prefix cache off").context_tokens == 0
    assert row(tiny, "prefill, prefix cache on").new_tokens == 36
    assert row(tiny, "prefill, prefix cache on").context_tokens == 16


def test_what_is_predicted_does_not_depend_on_how_long_steps_took(tiny: Answer[LabResult]) -> None:
    slow = Ticking({"decode": 0.007, "prefill": 0.007, "timing the kernels": 0.001})
    answer = lab(TINY, slow.instruments, computer=replace(COMPUTER, cache_bytes=MIB))
    assert [one.measured_s for one in answer.result.rows] == pytest.approx([0.007] * 7)
    assert [one.predicted_s for one in answer.result.rows] == pytest.approx(
        [one.predicted_s for one in tiny.result.rows], rel=1e-9
    )
    # The same model fits into one cache and not into the other.
    assert (tiny.result.larger_than_cache, answer.result.larger_than_cache) == (False, True)
    assert any("fit into the last-level cache" in text for text in tiny.warnings)
    assert not any("last-level cache" in text for text in answer.warnings)


def test_kernels_that_slow_down_are_told() -> None:
    slow = Ticking({"timing the kernels": 0.002})
    answer = lab(TINY, slow.instruments, computer=Computer(title="", architecture="", num_threads=1))
    assert answer.result.larger_than_cache is None
    assert answer.result.machine.drift_fraction == pytest.approx(1.0)
    assert any("+100%" in text and "--threads 1" in text for text in answer.warnings)


def test_projections_are_counted_with_and_without_a_cache(tiny: Answer[LabResult]) -> None:
    for point in tiny.result.projections:
        done = point.tokens - 1
        if point.cache == "no cache":
            assert (point.first_token_projections, point.total_projections) == (done, done * (done + 1) // 2)
        else:
            assert (point.first_token_projections, point.total_projections) == (1, done)
        # One step for each token after the first.
        assert point.elapsed_s == pytest.approx(0.001 * done)
    assert max(point.tokens for point in tiny.result.projections) == 40
    assert tiny.result.same_tokens


# Predictions come from the machinery that prices GPUs


def test_rows_are_priced_by_the_clock_of_steps_on_the_saved_entry(tmp_path: Path) -> None:
    path = tmp_path / "cpu.yaml"
    path.write_text(measure(Ticking().instruments, quick=True, computer=COMPUTER).result.overlay, encoding="utf-8")
    ask = LabAsk(
        hidden_size=64,
        num_layers=1,
        count_tokens=9,
        context_tokens=20,
        repeat=2,
        quick=True,
        gpu="this-cpu",
        catalogs=(str(path),),
    )
    teller = Ticking()
    answer = lab(ask, teller.instruments, computer=COMPUTER)
    assert not any(text.startswith("timing") for text in teller.told)
    catalog = files.load_catalog((str(path),))
    gpu = catalog.gpu("this-cpu").gpu
    model = chosen_model("small", hidden=64, layers=1, cache_bytes=None)
    clock = StepClock(model, curves_of(gpu, catalog.efficiency(gpu)), kv=KV_FORMATS["fp32"])
    found = row(answer, "decode, contiguous cache", 4)
    assert found.predicted_s == clock.step_s(num_decodes=4, context_tokens=found.context_tokens)
    uncached = row(answer, "decode, no cache")
    assert uncached.predicted_s == clock.step_s(num_prefills=1, new_tokens=uncached.new_tokens)
    assert answer.result.machine.bandwidth_bytes_per_s == gpu.bandwidth_bytes_per_s


def timings(of: Callable[[Probe], float]) -> tuple[Timed, ...]:
    """Probes of the laboratory with times that a formula gives instead of a clock."""
    made = probes(llama("some", hidden_size=512, num_layers=2), 64 * MIB)
    return tuple(Timed(probe=one, times=spread([of(one) * one.num_kernels])) for one in made)


def invented_s(probe: Probe) -> float:
    """Seconds of a computer that reads 20 GB/s and multiplies 100 GFLOP/s, the latter with eight rows and more."""
    if probe.family is Family.CALL:
        return 2e-6
    if probe.family in {Family.DECODE, Family.PAGED}:
        slowness = 3 if probe.family is Family.PAGED else 1
        return 5e-5 + 1e-5 * probe.tokens + slowness * probe.num_bytes / 5e9
    rate = 100e9 * math.sqrt(min(1.0, probe.tokens / 8))
    return max(probe.flop / rate, probe.num_bytes / 20e9) + 2e-6


def test_the_curves_give_back_the_times_of_the_kernels() -> None:
    timed = timings(invented_s)
    mixer = grouped_attention(llama("some", hidden_size=512, num_layers=2))
    gpu = gpu_from_mapping("x", entry(timed, COMPUTER, mixer, today="2030-01-02", numpy_version="9"), {})
    assert gpu.bandwidth_bytes_per_s == pytest.approx(bandwidth_bytes_per_s(timed), rel=1e-5)
    assert gpu.peak("fp32") == pytest.approx(peak_flop_per_s(timed), rel=1e-5)
    assert gpu.bandwidth_bytes_per_s == pytest.approx(20e9, rel=1e-2)
    assert gpu.peak("fp32") == pytest.approx(100e9, rel=1e-2)
    assert gpu.efficiency is not None
    curves = curves_of(gpu, gpu.efficiency)
    for one in timed:
        probe = one.probe
        blocks = probe.tokens * mixer.num_kv_heads
        match probe.family:
            case Family.GEMM | Family.STREAM:
                found_s = kernel_s(
                    curves.kernel("gemm", "fp32", 32), tokens=probe.tokens, flop=probe.flop, num_bytes=probe.num_bytes
                )
                # Pieces of a curve are straight, and small matrices wait for a call.
                assert found_s == pytest.approx(one.kernel_s, rel=0.03)
            case Family.DECODE:
                curve = curves.kernel("attention_decode", "bf16", 32)
                found_s = kernel_s(curve, tokens=blocks, flop=probe.flop, num_bytes=probe.num_bytes)
                assert found_s == pytest.approx(one.kernel_s, rel=1e-3)
            case _:
                pass


def test_attention_through_block_tables_has_a_curve_of_its_own() -> None:
    timed = timings(invented_s)
    mixer = grouped_attention(llama("some", hidden_size=512, num_layers=2))
    contiguous, paged = (decode_attention(timed, family, mixer, 20e9) for family in (Family.DECODE, Family.PAGED))
    assert contiguous["bandwidth"] == pytest.approx(5 / 20, rel=1e-4)
    assert paged["bandwidth"] == pytest.approx(5 / 20 / 3, rel=1e-4)
    assert contiguous["latency"] == paged["latency"] == "50 us"
    assert contiguous["latency_per_token"] == f"{10 / mixer.num_kv_heads:g} us"


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from([2.0**power for power in range(12)]), st.floats(1e-4, 1.0), min_size=1, max_size=12)
)
def test_points_are_made_into_a_curve_that_no_law_refuses(points: dict[float, float]) -> None:
    made = admissible(points)
    assert broken_fractions(tuple(math.log2(amount) for amount, _ in made), tuple(one for _, one in made)) is None
    assert len(made) <= 64 or len(points) > 10
    reached = {amount: fraction for amount, fraction in made}  # noqa: C416 - pairs are lists, which dict() cannot type
    # Nothing measured is made worse; only what would break the law is raised.
    assert all(reached[amount] >= fraction * (1 - 1e-5) for amount, fraction in points.items())
    last = max(points)
    assert reached[last] == pytest.approx(points[last], rel=1e-5)


# Times


def test_the_lower_quartile_forgives_what_others_disturbed() -> None:
    assert spread([1.0, 1.0, 1.0, 50.0, 50.0, 50.0, 50.0]).time_s == 1.0
    assert spread([3.0]) == spread([3.0, 3.0, 3.0][:1])
    kept = spread([float(number) for number in range(11)])
    assert (kept.low_s, kept.time_s, kept.high_s, kept.num_runs) == (0.0, 2.0, 9.0, 11)


def test_a_budget_ends_repeats_after_three() -> None:
    clock = Ticking()
    instruments = Instruments(clock=clock, today="", progress=clock.tell, budget_s=0.0005)
    assert not is_spent(0.0, 2, instruments)
    assert is_spent(0.0, 3, instruments)
    assert timed_s(lambda: None, clock) == pytest.approx(0.001)
    short = lab(TINY, instruments, explain=True, computer=COMPUTER)
    assert len(short.explanations) == len(short.result.rows)
    first = short.explanations[0]
    assert "gate_up" in first.substituted
    assert "attention" in first.substituted
    assert [item.name for item in first.inputs] == ["bandwidth_bytes_per_s", "peak_flop_per_s"]
    assert {one.num_steps for one in short.result.rows if one.case.startswith("decode")} == {3}


# Models and the computer


def test_the_large_model_grows_beyond_the_cache() -> None:
    for cache_bytes in (None, 32 * MIB, 480 * MIB, 1100 * MIB):
        model = chosen_model("large", hidden=None, layers=None, cache_bytes=cache_bytes)
        assert weight_bytes(model) > 1.5 * (cache_bytes or 0)
        assert model.num_layers >= SIZES["large"].num_layers
    # Four bytes a weight, counted by hand for the small one: embedding, head and final norm, then a layer.
    hidden, inner, layers = 512, 1408, 4
    layer = hidden * (2 * hidden + 2 * 128) + 3 * hidden * inner + 2 * hidden
    assert weight_bytes(chosen_model("small", hidden=None, layers=None, cache_bytes=None)) == 4 * (
        2 * 8192 * hidden + hidden + layers * layer
    )


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"size": "huge"}, "--size"),
        ({"hidden_size": 100}, "--hidden"),
        ({"hidden_size": 0}, "--hidden"),
        ({"num_layers": 0}, "--layers"),
        ({"count_tokens": 1}, "--tokens"),
        ({"count_tokens": 10**9}, "--tokens"),
        ({"context_tokens": 10**6}, "--context"),
        ({"batches": (0,)}, "--batch"),
        ({"batches": (65,)}, "--batch"),
        ({"repeat": 0}, "--repeat"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(changes: dict[str, object], place: str) -> None:
    clock = Ticking()
    with pytest.raises(UsageError) as refused:
        lab(LabAsk(**changes), clock.instruments, computer=COMPUTER)  # type: ignore[arg-type]
    assert refused.value.place == place
    assert refused.value.hint
    assert not clock.told


def test_a_model_that_memory_does_not_hold_is_refused() -> None:
    poor = Computer(title="", architecture="", num_threads=1, memory_bytes=GIB)
    with pytest.raises(DoesNotFit, match="of 1 GiB"):
        lab(LabAsk(), Ticking().instruments, computer=poor)
    with pytest.raises(DoesNotFit):
        measure(Ticking().instruments, computer=Computer(title="", architecture="", num_threads=1, memory_bytes=MIB))


def test_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(UnknownName):
        lab(LabAsk(quick=True, gpu="no-such-gpu"), Ticking().instruments, computer=COMPUTER)
    with pytest.raises(UsageError, match="no name"):
        measure(Ticking().instruments, name="--", quick=True, repeat=1, computer=COMPUTER)


def test_the_computer_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    found = this_computer()
    assert found.num_threads == 7
    assert found.title
    assert found.memory_bytes is None or found.memory_bytes > MIB
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert this_computer().num_threads >= 1


# On this computer


def test_decode_is_predicted_within_orders_of_magnitude() -> None:
    # As wide as it is, it finds milliseconds taken for seconds; how near it comes is a matter of a quiet computer.
    real = Instruments(clock=time.perf_counter, today="2030-01-02", progress=lambda _: None, budget_s=2.0)
    answer = lab(LabAsk(quick=True, count_tokens=5), real)
    for one in answer.result.rows:
        assert one.measured_s / 200 < one.predicted_s < one.measured_s * 200
        assert one.measured_s_low <= one.measured_s <= one.measured_s_high


# How long it takes


def test_budgets_are_counted_by_the_wall_whatever_times_are_taken_by() -> None:
    clock, wall = Ticking(), Ticking()
    wall.tick_s = 1.0
    instruments = replace(clock.instruments, wall_s=wall, budget_s=0.5)
    assert not is_spent(0.0, 2, instruments)
    assert is_spent(0.0, 3, instruments)
    slow = lab(TINY, instruments, computer=COMPUTER)
    # Four steps each without a budget; times are those of the clock.
    assert {one.num_steps for one in slow.result.rows} <= {2, 3}
    assert row(slow, "decode, no cache").measured_s == pytest.approx(0.001)


def test_after_the_end_what_is_left_runs_once_and_that_is_told() -> None:
    wall = Ticking()
    instruments = replace(Ticking().instruments, wall_s=wall, budget_s=1.0, ends_s=0.0)
    asked = replace(TINY, repeat=8)
    answer = lab(asked, instruments, computer=COMPUTER)
    assert {one.num_steps for one in answer.result.rows} == {1}
    assert any("7 of 7 kinds of steps" in text for text in answer.warnings)


def test_counting_ends_where_its_time_is_over_and_that_is_told() -> None:
    wall = Ticking()
    wall.tick_s = 1.0
    instruments = replace(Ticking().instruments, wall_s=wall, budget_s=1.0)
    unasked = replace(TINY, count_tokens=None)
    answer = lab(unasked, instruments, computer=COMPUTER)
    reached = {one.cache: one.tokens for one in answer.result.projections}
    assert max(reached.values()) < QUICK_COUNT_TOKENS
    assert any("counted up to token" in text for text in answer.warnings)
    # What was asked for is counted to its end.
    assert TINY.count_tokens in {one.tokens for one in lab(TINY, instruments, computer=COMPUTER).result.projections}
    assert not any(
        "counted up to token" in text for text in lab(TINY, Ticking().instruments, computer=COMPUTER).warnings
    )


def test_each_part_says_its_number_and_how_long_the_rest_takes() -> None:
    wall = Ticking()
    wall.tick_s = 10.0
    course = Course(replace(wall.instruments, wall_s=wall), 3)
    for text in ("one", "two", "three"):
        course.begin(text)
    assert wall.told == ["one (1 of 3)", "two (2 of 3, about 20 s to go)", "three (3 of 3, about 10 s to go)"]


@pytest.mark.parametrize("gpu", [None, "h100"])
def test_the_parts_are_as_many_as_are_announced(gpu: str | None) -> None:
    clock = Ticking()
    lab(replace(TINY, gpu=gpu), clock.instruments, computer=COMPUTER)
    numbers = [text.rpartition("(")[2].split(" of ") for text in clock.told]
    assert [int(number) for number, _ in numbers] == list(range(1, len(numbers) + 1))
    assert {int(number.split(",")[0].rstrip(")")) for _, number in numbers} == {len(numbers)}

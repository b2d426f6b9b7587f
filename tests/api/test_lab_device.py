"""``lab measure --device``: on a stand-in for torch whose device is one formula, and on torch itself where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.api.answer import Answer
from infcalc.api.lab_device import DeviceAsk, measure_device
from infcalc.api.lab_device_cases import BYTES_OF, cases_of, messages_of, product
from infcalc.api.lab_device_curves import collective, line_of
from infcalc.api.lab_device_nouns import Case, DeviceResult, DeviceRow, Family, LeftOut, Samples, Timing
from infcalc.api.lab_machine import Computer
from infcalc.api.lab_timing import Instruments
from infcalc.api.lab_torch import torch_module
from infcalc.api.lab_torch_ranks import all_reduces
from infcalc.catalog.efficiency import efficiency_from_mapping
from infcalc.errors import DoesNotFit, UnknownName, UsageError
from infcalc.files import load_catalog, write_text
from infcalc.roofline.curves import collective_s, curves_of, kernel_s, traffic_bytes
from infcalc.spec.efficiency import AlgorithmKind, Basis, GpuEfficiency
from infcalc.units import GIB, MIB
from tests.api.stand_in_torch import StandIn

COMPUTER = Computer(title="Some CPU", architecture="abc", num_threads=3, memory_bytes=16 * GIB, cache_bytes=32 * MIB)
LATENCY_S, SPEED = 12e-6, 300e9


def reduced(
    device: str, cases: tuple[Case, ...], *, num_samples: int
) -> tuple[tuple[Timing, ...], tuple[LeftOut, ...]]:
    """All-reduces of a link that is one line."""
    assert num_samples >= 1
    assert device in {"cuda", "cpu"}
    found = []
    for case in cases:
        time_s = LATENCY_S + float(traffic_bytes(AlgorithmKind.RING, case.num_ranks, case.num_bytes)) / SPEED
        found.append(Timing(case=case, samples=Samples(time_s=time_s, low_s=time_s, high_s=time_s, num_samples=3)))
    return tuple(found), ()


def measured(
    standin: StandIn | None = None, *, device: str = "cuda", repeat: int = 2, quick: bool = False, **words: str
) -> Answer[DeviceResult]:
    standin = standin or StandIn()
    instruments = Instruments(clock=standin.clock, today="2030-01-02", progress=lambda _: None)
    ask = DeviceAsk(device=device, repeat=repeat, quick=quick, gpu=words.get("gpu"), name=words.get("name"))
    return measure_device(ask, instruments, torch=standin, computer=COMPUTER, reduce=reduced)


def rows(answer: Answer[DeviceResult], family: Family, precision: str = "") -> list[DeviceRow]:
    return [row for row in answer.result.kernels if row.kernel == family and row.precision in {precision, ""}]


def written(answer: Answer[DeviceResult]) -> dict[str, Any]:
    (entry,) = yaml.safe_load(answer.result.overlay)["gpus"].values()
    found: dict[str, Any] = entry
    return found


# A GPU that the catalog knows


def test_what_a_device_reaches_of_its_peaks_is_found() -> None:
    answer = measured()

    machine = answer.result.machine
    assert (machine.gpu, machine.known, machine.device) == ("h100-sxm5-80gb", True, "cuda")
    assert machine.bandwidth_bytes_per_s == 3.35e12
    (large,) = (row for row in rows(answer, Family.GEMM, "bf16") if row.size.startswith("8,192 x 8,192"))
    # 0.7 of the peak, less the two microseconds before it.
    assert large.efficiency_fraction == pytest.approx(0.7, rel=0.01)
    assert large.bound_by == "compute"
    stream = rows(answer, Family.STREAM, "bf16")[-1]
    assert stream.bound_by == "memory"
    assert stream.efficiency_fraction == pytest.approx(0.8, rel=0.02)
    assert rows(answer, Family.COPY)[-1].efficiency_fraction == pytest.approx(0.9, rel=0.01)
    (up,) = rows(answer, Family.UPLOAD)
    assert up.bytes_per_s == pytest.approx(50e9, rel=1e-3)
    assert answer.result.left_out
    assert not answer.warnings


def test_the_overlay_is_read_by_the_catalog_and_predicts_the_device_again(tmp_path: Path) -> None:
    answer = measured()
    path = tmp_path / "mine.yaml"
    write_text(str(path), answer.result.overlay)

    catalog = load_catalog((str(path),))
    gpu = catalog.gpu("h100").gpu
    curves = curves_of(gpu, catalog.efficiency(gpu))
    fp8, bf16 = curves.kernel("gemm", "fp8", 8), curves.kernel("gemm", "bf16")
    for rows_, columns, inner in ((16, 12288, 4096), (256, 8192, 8192), (3000, 4096, 14336)):
        for precision, curve, peak in (("bf16", bf16, 989.4e12), ("fp8", fp8, 1979e12)):
            case = product(Family.GEMM, precision, rows_, columns, inner)
            true_s = max(case.flop / (0.7 * peak), case.num_bytes / (0.8 * 3.35e12)) + 2e-6
            guess_s = kernel_s(curve, tokens=rows_, flop=case.flop, num_bytes=case.num_bytes)
            assert guess_s == pytest.approx(true_s, rel=0.05), (precision, rows_)
    # All else stays what the catalog knew.
    shipped = load_catalog(()).efficiency(load_catalog(()).gpu("h100").gpu)
    assert dict(catalog.efficiency(gpu).kernels)["moe/bf16"] == dict(shipped.kernels)["moe/bf16"]


def test_curves_of_the_engines_own_kernels_are_not_replaced_by_torchs() -> None:
    answer = measured()

    kernels = written(answer)["efficiency"]["kernels"]
    assert set(kernels) == {"gemm", "elementwise"}
    assert kernels["elementwise"]["any"]["basis"] == "modelled"
    assert {one.case for one in answer.result.left_out} >= {"attention prefill/bf16", "attention decode/bf16"}


def test_a_part_that_was_never_measured_gets_all_curves() -> None:
    peaks = {"float32": 30.3e12, "float16": 121e12, "bfloat16": 121e12, "float8_e4m3fn": 242.5e12}
    kernels = written(measured(StandIn(name="NVIDIA L4", bandwidth=300e9, peaks=peaks)))["efficiency"]["kernels"]

    assert set(kernels) == {"gemm", "attention_prefill", "attention_decode", "elementwise"}
    assert kernels["attention_decode"]["bf16"]["bandwidth"] == pytest.approx(0.8, rel=0.05)


# What a shared computer takes for an example says nothing of it.
@settings(deadline=None, max_examples=25)
@given(compute=st.floats(0.05, 1.0), bandwidth=st.floats(0.1, 1.0))
def test_any_device_is_found_again(compute: float, bandwidth: float) -> None:
    answer = measured(StandIn(compute_share=compute, bandwidth_share=bandwidth), quick=True, repeat=1)

    for row in answer.result.curves:
        if row.curve.startswith("gemm"):
            assert row.median_abs_error_fraction < 0.05
            assert (row.held_out_median_abs_error_fraction or 0.0) < 0.15
    assert all(row.efficiency_fraction is None or row.efficiency_fraction <= 1.001 for row in answer.result.kernels)


def test_all_reduces_between_several_gpus_are_written() -> None:
    answer = measured(StandIn(num_devices=4))

    assert {row.num_ranks for row in rows(answer, Family.ALL_REDUCE)} == {2, 4}
    efficiency = efficiency_from_mapping("mine", written(answer)["efficiency"])
    assert [(one.library, one.num_ranks) for one in efficiency.collectives] == [("nccl", 2), ("nccl", 4)]
    gpu = load_catalog(()).gpu("h100").gpu
    curves = curves_of(gpu, GpuEfficiency(name="x", collectives=efficiency.collectives))
    for size in (10_000, 5_000_000, 100_000_000):
        true_s = LATENCY_S + 1.5 * size / SPEED
        assert collective_s(curves, "all_reduce", num_ranks=4, message_bytes=size) == pytest.approx(true_s, rel=0.01)


# A device that it does not know


def test_a_gpu_without_an_entry_gets_one_whose_peaks_are_what_was_reached() -> None:
    answer = measured(StandIn(name="Some GPU 9000"))

    entry = written(answer)
    machine = answer.result.machine
    assert (machine.gpu, machine.known) == ("some-gpu-9000", False)
    assert float(entry["bf16"].split()[0]) * 1e9 == pytest.approx(0.7 * 989.4e12, rel=0.01)
    assert entry["doubts"]
    assert max(row.efficiency_fraction or 0 for row in answer.result.kernels) == pytest.approx(1.0)
    assert "no catalog entry states its peaks" in " ".join(answer.assumptions)


def test_gpu_says_which_entry_a_device_is() -> None:
    answer = measured(StandIn(name="Some GPU 9000"), gpu="h100")
    assert answer.result.machine.gpu == "h100-sxm5-80gb"
    with pytest.raises(UnknownName):
        measured(gpu="no-such-gpu")


def test_a_cpu_gets_an_entry_of_its_own() -> None:
    answer = measured(StandIn(cuda=False, bandwidth=30e9, peaks=dict.fromkeys(BYTES, 300e9)), device="cpu")

    entry = written(answer)
    assert answer.result.machine.gpu == "this-cpu"
    assert entry["unified_memory"]
    assert "collectives" not in entry["efficiency"]
    assert any("gloo" in one.why for one in answer.result.left_out)
    assert not rows(answer, Family.UPLOAD)


BYTES = ("float32", "float16", "bfloat16", "float8_e4m3fn")


# What goes wrong


def test_torch_that_is_missing_is_told_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(UsageError, match="torch is") as found:
        torch_module()
    assert found.value.hint


@pytest.mark.parametrize(("built", "text"), [("12.9", "nvidia-smi"), (None, "built for the CPU alone")])
def test_a_gpu_that_torch_does_not_see_is_told_with_the_mend(built: str | None, text: str) -> None:
    with pytest.raises(UsageError, match="sees no CUDA device") as found:
        measured(StandIn(cuda=False, built=built))
    assert text in (found.value.hint or "")
    assert "--device cpu" in (found.value.hint or "")


def test_sizes_without_room_are_left_out_and_said() -> None:
    answer = measured(StandIn(memory_bytes=600e6))

    missed = [one for one in answer.result.left_out if one.why == "out of memory"]
    assert missed
    assert any("16,384" in one.case for one in missed)
    assert any(text.startswith("out of memory, so left out: ") for text in answer.warnings)
    assert written(answer)["efficiency"]["kernels"]["gemm"]


def test_a_device_without_room_for_anything_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match="no memory"):
        measured(StandIn(memory_bytes=10))


def test_a_precision_without_kernels_is_left_out_with_the_reason() -> None:
    answer = measured(StandIn(refused=("float8_e4m3fn",)))

    assert not rows(answer, Family.GEMM, "fp8")
    assert {one.why for one in answer.result.left_out if "fp8" in one.case} == {"no kernel for float8_e4m3fn"}
    assert set(written(answer)["efficiency"]["kernels"]["gemm"]) == {"bf16"}


def test_a_device_that_refuses_everything_is_no_answer() -> None:
    class Dead(StandIn):
        def spend(self, time_s: float) -> None:
            raise RuntimeError(f"no kernel image is available for execution on the device: {time_s:g}")

    with pytest.raises(UsageError, match="no kernel ran on the device"):
        measured(Dead())


def test_16_bit_is_that_of_fp16_where_bf16_has_no_units() -> None:
    slow = {"float32": 8.1e12, "float16": 65e12, "bfloat16": 2e12, "float8_e4m3fn": 1e12}
    answer = measured(StandIn(name="Tesla T4", peaks=slow, bandwidth=300e9))

    best = written(answer)["efficiency"]["kernels"]["gemm"]["bf16"]["compute"][-1][1]
    assert best == pytest.approx(0.7, rel=0.02)


def test_more_than_the_peak_is_doubted() -> None:
    answer = measured(StandIn(compute_share=1.0, peaks=dict.fromkeys(BYTES, 2e15)))

    assert any("is that the device?" in text for text in answer.warnings)
    kernels = written(answer)["efficiency"]["kernels"]["gemm"]
    assert all(point[1] <= 1 for point in kernels["bf16"]["compute"])


def test_without_graphs_it_is_said() -> None:
    answer = measured(StandIn(graphs=False))
    assert any("no CUDA graph" in text for text in answer.warnings)


def test_scatter_is_stated_and_much_of_it_warned_of() -> None:
    answer = measured(StandIn(jitter=lambda number: 2.0 if number % 3 else 1.0), repeat=5)

    assert max(row.spread_fraction for row in answer.result.kernels) > 0.3
    assert all(row.time_s_low <= row.time_s <= row.time_s_high for row in answer.result.kernels)
    assert any("scatter" in text for text in answer.warnings)


def test_a_curve_that_misses_what_it_was_made_of_is_not_written() -> None:
    class Moody(StandIn):
        def kernel(self, dtype: str, flop: float, num_bytes: float) -> None:
            # Every shape takes what it likes: no curve can be right of those that it has not seen.
            for _ in range(1 + int(num_bytes) % 7919 % 13):
                super().kernel(dtype, flop, num_bytes)

    answer = measured(Moody(), quick=True)

    left = {one.case for one in answer.result.left_out if "misses what was measured" in one.why}
    assert left
    assert not left & {row.curve for row in answer.result.curves}


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="0 times"):
        measured(repeat=0)
    with pytest.raises(UsageError, match="is no name"):
        measured(name="--")
    with pytest.raises(UsageError, match="is no device"):
        measured(device="tpu")


# Parts


def test_cases_count_as_the_catalog_does() -> None:
    for device in ("cuda", "cpu"):
        for quick in (True, False):
            for case in cases_of(device, quick=quick):
                assert case.num_bytes > 0
                assert (case.flop > 0) is (case.family not in {Family.COPY, Family.UPLOAD, Family.DOWNLOAD})
            assert all(case.num_ranks == 4 for case in messages_of(device, 4, quick=quick))
    one = product(Family.GEMM, "fp8", 10, 30, 20)
    assert (one.flop, one.num_bytes) == (2 * 10 * 30 * 20, 30 * 20 + 2 * 10 * 50)
    assert BYTES_OF["fp8"] == 1


@given(st.lists(st.floats(0, 10), min_size=3, max_size=3), st.integers(0, 10**6))
def test_a_line_is_found_and_none_of_its_parts_is_negative(parts: list[float], seed: int) -> None:
    import numpy as np  # noqa: PLC0415 - this test alone

    columns = np.random.default_rng(seed).uniform(0.5, 10, (3, 8))
    times = np.maximum(1e-9, np.array(parts) @ columns)
    found = line_of(columns.tolist(), times.tolist())
    assert (found >= 0).all()
    assert found @ columns == pytest.approx(times, rel=1e-6, abs=1e-9)
    noisy = line_of(columns.tolist(), np.random.default_rng(seed).uniform(0.1, 1, 8).tolist())
    assert (noisy >= 0).all()


def test_messages_that_change_their_way_are_two_lines_and_those_that_bend_upwards_one() -> None:
    def timings(times_s: list[float]) -> list[Timing]:
        cases = [
            Case(family=Family.ALL_REDUCE, num_ranks=2, num_bytes=10.0**power) for power in range(4, 4 + len(times_s))
        ]
        return [
            Timing(case=case, samples=Samples(time_s=time_s, low_s=time_s, high_s=time_s, num_samples=1))
            for case, time_s in zip(cases, times_s, strict=True)
        ]

    two = collective(timings([min(5e-6 + n / 5e9, 30e-6 + n / 200e9) for n in (1e4, 1e5, 1e6, 1e7)]), "nccl")
    one = collective(timings([1e-5, 2e-5, 9e-4, 9e-1]), "nccl")
    assert two is not None
    assert one is not None
    assert [len(found["algorithms"]) for found in (two, one)] == [2, 1]  # type: ignore[arg-type]
    assert collective(timings([1e-5]), "nccl") is None


# torch itself

NO_TORCH = "torch is not installed: it is some GB, and no test installs it (pip install 'infcalc[torch]')"


def test_on_torch_itself(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    import time  # noqa: PLC0415 - this test alone

    instruments = Instruments(clock=time.perf_counter, today="2030-01-02", progress=lambda _: None)
    answer = measure_device(
        DeviceAsk(device="cpu", repeat=1, quick=True, name="mine"), instruments, torch=torch, computer=COMPUTER
    )

    families = {row.kernel for row in answer.result.kernels}
    assert families >= {Family.COPY, Family.GEMM, Family.STREAM, Family.PREFILL, Family.DECODE}
    assert all(row.time_s > 0 for row in answer.result.kernels)
    path = tmp_path / "mine.yaml"
    write_text(str(path), answer.result.overlay)
    gpu = load_catalog((str(path),)).gpu("mine").gpu
    assert gpu.bandwidth_bytes_per_s == pytest.approx(answer.result.machine.reached_bytes_per_s, rel=1e-4)


def test_two_processes_reduce_through_gloo() -> None:
    pytest.importorskip("torch", reason=NO_TORCH)

    timings, left_out = all_reduces("cpu", messages_of("cpu", 2, quick=True), num_samples=2)

    # A computer without a network, even to itself, has no gloo: then that is what is said.
    assert [one.case.num_bytes for one in timings] == [65536.0, 1048576.0] or all(one.why for one in left_out)
    assert all(one.time_s > 0 for one in timings)


def test_processes_that_cannot_reduce_say_why() -> None:
    timings, left_out = all_reduces("cuda", messages_of("cuda", 2, quick=True)[:1], num_samples=1)
    assert not timings
    (one,) = left_out
    assert one.why


def test_shipped_curves_stay_calibrated_where_torch_is_not_better() -> None:
    known = load_catalog(()).efficiency(load_catalog(()).gpu("h100").gpu)
    assert dict(known.kernels)["attention_decode/bf16"].basis is Basis.CALIBRATED

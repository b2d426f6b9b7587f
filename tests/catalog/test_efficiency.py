from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infcalc import files
from infcalc.catalog.efficiency import VARIANTS, efficiency_from_mapping
from infcalc.catalog.lookup import Catalog
from infcalc.errors import CatalogError
from infcalc.files import load_catalog, read_yaml
from infcalc.roofline.curves import collective_s, curves_of
from infcalc.spec.efficiency import (
    Algorithm,
    AlgorithmKind,
    Basis,
    CollectiveKind,
    CollectiveShape,
    Fractions,
    GpuEfficiency,
    KernelShape,
    Residual,
)

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT.parent / "shared" / "data" / "kernels"

ENTRY: dict[str, Any] = {
    "measured_on": ["mine"],
    "aliases": ["Some architecture"],
    "kernels": {
        "gemm": {
            "bf16": {
                "compute": [[64, 0.5], [256, 0.75]],
                "bandwidth": [["4 MiB", 0.5], ["64 MiB", 0.75]],
                "latency": "4 us",
                "sharpness": 3,
                "error": {"points": 10, "median": 0.05, "p90": 0.2, "worst": 0.4, "held_out_median": 0.06},
                "source": "here",
            }
        },
        "attention_decode": {"bf16": {"bandwidth": 0.8, "latency_per_token": "0.03 us", "basis": "modelled"}},
    },
    "link": "450 GB/s",
    "collectives": [
        {
            "kind": "all_reduce",
            "library": "nccl",
            "ranks": 8,
            "algorithms": [{"kind": "ring", "latency": "10 us", "speed": "300 GB/s"}],
        }
    ],
    "network": "50 GB/s",
    "network_latency": "12 us",
    "source": "measured",
    "date": "2026-11-29",
    "doubts": ["one run"],
}


def changed(entry: Any, path: tuple[str | int, ...], value: object) -> Any:  # noqa: ANN401
    """Return the entry with ``value`` at ``path``."""
    if not path:
        return value
    first, *rest = path
    pairs: dict[Any, Any] = dict(enumerate(entry)) if isinstance(entry, list) else dict(entry)
    pairs[first] = changed(pairs.get(first, {}), tuple(rest), value)
    return list(pairs.values()) if isinstance(entry, list) else pairs


def faults_of(*paths: str) -> tuple[str, ...]:
    with pytest.raises(CatalogError) as caught:
        load_catalog(paths)
    assert caught.value.exit_code == 2
    return caught.value.faults


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "team.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def efficiency(catalog: Catalog, gpu: str) -> GpuEfficiency:
    return catalog.efficiency(catalog.gpu(gpu).gpu)


def test_an_entry_is_read_as_it_is_written() -> None:
    assert efficiency_from_mapping("mine", ENTRY) == GpuEfficiency(
        name="mine",
        measured_on=("mine",),
        kernels=(
            (
                "gemm/bf16",
                KernelShape(
                    compute_fraction=Fractions(knots=(6.0, 8.0), fractions=(0.5, 0.75)),
                    bandwidth_fraction=Fractions(knots=(22.0, 26.0), fractions=(0.5, 0.75)),
                    latency_s=4 * 1e-6,
                    sharpness=3.0,
                    residual=Residual(
                        num_points=10,
                        median_fraction=0.05,
                        p90_fraction=0.2,
                        worst_fraction=0.4,
                        held_out_median_fraction=0.06,
                    ),
                    source="here",
                ),
            ),
            (
                "attention_decode/bf16",
                KernelShape(
                    bandwidth_fraction=Fractions(fractions=(0.8,)),
                    latency_per_token_s=0.03 * 1e-6,
                    basis=Basis.MODELLED,
                ),
            ),
        ),
        collectives=(
            CollectiveShape(
                kind=CollectiveKind.ALL_REDUCE,
                library="nccl",
                num_ranks=8,
                algorithms=(Algorithm(kind=AlgorithmKind.RING, latency_s=10 * 1e-6, bytes_per_s=3e11),),
            ),
        ),
        link_bytes_per_s=450e9,
        network_bytes_per_s=50e9,
        network_latency_s=12 * 1e-6,
        source="measured",
        date="2026-11-29",
        doubts=("one run",),
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("kernels", "gemm", "bf16", "compute"), [[64, 1.2]], "compute.0: must be from 1e-06 to 1, found 1.2"),
        (("kernels", "gemm", "bf16", "compute"), [[64, 0.1], [65, 0.9]], "grows faster than the work"),
        (("kernels", "gemm", "bf16", "compute"), [[64, 0.1], [32, 0.1]], "its points must rise"),
        (("kernels", "gemm", "bf16", "compute"), "high", "expected points such as"),
        (("kernels", "gemm", "bf16", "compute"), [], "expected points such as"),
        (("kernels", "gemm", "bf16", "compute"), [0.5], "expected an amount and a fraction"),
        (("kernels", "gemm", "bf16", "bandwidth"), [[64, 0.5]], "64 has no unit"),
        (("kernels", "gemm", "bf16", "latency"), 4, "has no unit"),
        (("kernels", "gemm", "bf16", "latency"), "4 s", "out of range"),
        (("kernels", "gemm", "bf16", "sharpness"), 0.5, "must be from 1 to 64"),
        (("kernels", "gemm", "bf16", "basis"), "sure", "none of calibrated, modelled, uncalibrated"),
        (("kernels", "gemm", "bf16", "eror"), 1, "did you mean error?"),
        (("kernels", "gemm", "int2"), {}, "unknown key"),
        (("kernels", "conv"), {}, "unknown kind of kernel; known are gemm"),
        (("kernels",), 3, "expected a mapping"),
        (("collectives",), {}, "expected a list of collectives"),
        (("collectives", 0, "ranks"), 1, "must be from 2 to 4096"),
        (("collectives", 0, "library"), "mine", "none of nccl, vllm"),
        (("collectives", 0, "algorithms"), [], "expected a list of algorithms"),
        (("collectives", 0, "kind"), "gossip", "none of all_reduce"),
        (("source",), 3, "expected text"),
    ],
)
def test_faults_name_their_key(path: tuple[str | int, ...], value: object, message: str) -> None:
    with pytest.raises(CatalogError) as caught:
        efficiency_from_mapping("mine", changed(ENTRY, path, value))
    (fault,) = caught.value.faults
    assert fault.startswith("efficiencies.mine." + ".".join(map(str, path[:2])))
    assert message in fault


def test_a_broken_file_is_told_with_file_line_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("models.yaml", "gpus.yaml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    text = (ROOT / "efficiency.yaml").read_text(encoding="utf-8")
    broken = text.replace("latency: 10 us", "latency: ten", 1).replace("basis: modelled", "basis: hoped", 1)
    (tmp_path / "efficiency.yaml").write_text(broken, encoding="utf-8")
    monkeypatch.setattr(files, "_HERE", str(tmp_path / "infcalc"))
    lines = {number for number, line in enumerate(broken.splitlines(), 1) if "latency: ten" in line or "hoped" in line}
    found = faults_of()
    assert {int(fault.split(":")[1]) for fault in found} == lines
    assert all(fault.startswith("efficiency.yaml:") and ": efficiencies." in fault for fault in found)


def test_two_entries_cannot_serve_the_same_part(tmp_path: Path) -> None:
    text = "efficiencies:\n  mine:\n    aliases: [Hopper GH100]\n    source: s\n    date: d\n"
    # A later file may take a name over; within one file it may not stand twice.
    double = text + "  other:\n    aliases: [Hopper GH100]\n    source: s\n    date: d\n"
    assert any("is already a name of 'mine'" in fault for fault in faults_of(written(tmp_path, double)))
    load_catalog((written(tmp_path, text),))


def test_a_gpu_may_carry_its_own_curves(tmp_path: Path) -> None:
    text = """
gpus:
  h100:
    efficiency:
      kernels:
        gemm:
          bf16: {compute: 0.9, bandwidth: 0.95, latency: 3 us}
      collectives:
        - kind: all_reduce
          library: vllm
          ranks: 8
          algorithms: [{kind: ring, latency: 1 us, speed: 400 GB/s}]
"""
    before, after = load_catalog(), load_catalog((written(tmp_path, text),))
    shipped, own = (dict(efficiency(catalog, "h100").kernels) for catalog in (before, after))
    assert own["gemm/bf16"].latency_s == pytest.approx(3e-6)
    assert own["gemm/bf16"].basis is Basis.CALIBRATED
    assert {key: shape for key, shape in own.items() if key != "gemm/bf16"} == {
        key: shape for key, shape in shipped.items() if key != "gemm/bf16"
    }
    gpu = after.gpu("h100").gpu
    curves = curves_of(gpu, after.efficiency(gpu))
    assert collective_s(curves, "all_reduce", num_ranks=8, message_bytes=8e6) == pytest.approx(1e-6 + 14e6 / 400e9)
    assert after.gpu("h100").origins["efficiency"].endswith("team.yaml:4")
    # Others of the family do not see it.
    assert efficiency(after, "h800") == efficiency(before, "h800")


def test_faults_of_a_gpus_own_curves_are_told_with_file_line_and_key(tmp_path: Path) -> None:
    text = "gpus:\n  h100:\n    efficiency:\n      kernels:\n        gemm:\n          bf16:\n            compute: 1.5\n"
    path = written(tmp_path, text)
    (fault,) = faults_of(path)
    assert fault.startswith(f"{path}:7: gpus.h100-sxm5-80gb.efficiency.kernels.gemm.bf16.compute")


def test_an_unknown_part_inherits_from_its_architecture_and_says_so(tmp_path: Path) -> None:
    text = """
gpus:
  h150:
    vendor: NVIDIA
    architecture: Hopper GH100
    memory: 96 GiB
    bandwidth: 4000 GB/s
    bf16: 900 TFLOPS
    source: mine
    date: 2026-11-29
  blackwell-pocket:
    vendor: NVIDIA
    architecture: Blackwell pocket edition
    memory: 16 GiB
    bandwidth: 400 GB/s
    bf16: 90 TFLOPS
    source: mine
    date: 2026-11-29
  abacus:
    memory: 16 GiB
    bandwidth: 400 GB/s
    bf16: 90 TFLOPS
    source: mine
    date: 2026-11-29
"""
    catalog = load_catalog((written(tmp_path, text),))
    for name, relative in (("h150", "h100-sxm5-80gb"), ("blackwell-pocket", "b200-sxm-180gb"), ("abacus", "any")):
        found = efficiency(catalog, name)
        assert found.name == relative
        assert {shape.basis for _, shape in found.kernels} == {Basis.UNCALIBRATED}
        assert {shape.basis for shape in found.collectives} <= {Basis.UNCALIBRATED}


def test_every_shipped_curve_has_a_source_and_measured_ones_their_errors() -> None:
    catalog = load_catalog()
    for name in catalog.names("efficiencies"):
        entry = catalog.efficiency_entry(name)
        assert entry.source
        assert entry.date
        assert set(entry.measured_on) <= set(catalog.gpu_names())
        for key, shape in entry.kernels:
            kind, _, variant = key.partition("/")
            assert variant in VARIANTS[kind]
            if shape.basis is Basis.CALIBRATED:
                assert shape.source
                assert shape.residual is not None
                assert shape.residual.num_points >= 6
                assert shape.residual.median_fraction <= 0.15
        for collective in entry.collectives:
            assert collective.source
            assert collective.residual is not None or collective.basis is not Basis.CALIBRATED


def test_no_shape_held_out_is_twice_as_wrong_as_those_fitted() -> None:
    catalog = load_catalog()
    for name in catalog.names("efficiencies"):
        for key, shape in catalog.efficiency_entry(name).kernels:
            residual = shape.residual
            if residual and residual.held_out_median_fraction:
                # One expert alone was timed, whole and cut in 2, 4 and 8: leaving one of them out leaves a gap.
                least = 0.1 if key.startswith(("moe_even/", "moe/bf16_w4")) else 0.05
                assert residual.held_out_median_fraction <= max(least, 1.6 * residual.median_fraction), (name, key)


@pytest.mark.skipif(not TABLES.exists(), reason="the tables of measured kernels are not in the repository")
def test_the_shipped_file_is_what_the_script_fits(tmp_path: Path) -> None:
    again = tmp_path / "efficiency.yaml"
    script = ROOT / "scripts" / "fit_efficiency.py"
    subprocess.run([sys.executable, str(script), "--output", str(again)], check=True)
    fitted, shipped = (read_yaml(str(path)) for path in (again, ROOT / "efficiency.yaml"))
    assert isinstance(fitted, dict)
    assert isinstance(shipped, dict)
    assert list(fitted["efficiencies"]) == list(shipped["efficiencies"])
    for name in fitted["efficiencies"]:
        # The last digits of a search may depend on the processor.
        new, old = (efficiency_from_mapping(name, file["efficiencies"][name]) for file in (fitted, shipped))
        assert [key for key, _ in new.kernels] == [key for key, _ in old.kernels]
        for (key, one), (_, other) in zip(new.kernels, old.kernels, strict=True):
            assert one.basis is other.basis, key
            if one.residual and other.residual:
                assert one.residual.num_points == other.residual.num_points, key
                assert one.residual.median_fraction == pytest.approx(other.residual.median_fraction, abs=0.02), key


def test_the_page_on_efficiency_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "efficiency_page.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_block_in_the_documentation_loads(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "catalog.md").read_text(encoding="utf-8")
    block = page.partition("```yaml curves.yaml\n")[2].partition("```")[0]
    catalog = load_catalog((written(tmp_path, block),))
    found = efficiency(catalog, "orbit-1")
    assert dict(found.kernels)["gemm/bf16"].latency_s == pytest.approx(4e-6)
    assert [shape.library for shape in found.collectives] == ["nccl"]


def test_cards_without_peer_access_exchange_through_the_host() -> None:
    catalog = files.load_catalog()

    def all_reduce_s(gpu: str, message_bytes: float) -> float:
        part = catalog.gpu(gpu).gpu
        curves = curves_of(part, catalog.efficiency(part))
        return collective_s(curves, "all_reduce", num_ranks=2, message_bytes=message_bytes)

    # Both over PCIe of the fourth generation.
    assert all_reduce_s("rtx-4090", 2**13) == pytest.approx(all_reduce_s("rtx-6000-ada", 2**13) + 40e-6, rel=0.2)
    assert all_reduce_s("rtx-4090", 2**28) > 1.5 * all_reduce_s("rtx-6000-ada", 2**28)

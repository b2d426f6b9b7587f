from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infcalc.catalog.gpus import PRECISIONS, cuda_ratios, gpu_from_mapping
from infcalc.catalog.lookup import Catalog
from infcalc.errors import CatalogError
from infcalc.files import load_catalog
from infcalc.planning.prices import day_of, standing_of
from infcalc.units import GIB

FACTS = Path(__file__).resolve().parents[2].parent / "shared" / "facts" / "gpus.yaml"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def entry() -> dict[str, Any]:
    return {
        "memory": "80 GiB",
        "bandwidth": "2039 GB/s",
        "bf16": "312 TFLOPS",
        "source": "vendor page",
        "date": "2026-11-29",
    }


def test_the_five_required_keys_make_a_gpu() -> None:
    gpu = gpu_from_mapping("mine", entry(), {"memory/all": 0.98})
    assert (gpu.title, gpu.vendor, gpu.architecture) == ("mine", "unknown", "unknown")
    assert gpu.memory_bytes == 80 * GIB
    assert gpu.bandwidth_bytes_per_s == 2.039e12
    assert gpu.peak_flop_per_s == (("bf16", 312e12),)
    assert gpu.cuda_total_estimated
    assert gpu.cuda_total_bytes == int(80 * GIB * 0.98)
    assert any("98.0%" in doubt for doubt in gpu.doubts)


def test_all_keys_arrive_in_base_units() -> None:
    gpu = gpu_from_mapping(
        "mine",
        entry()
        | {
            "title": "My GPU",
            "vendor": "Me",
            "architecture": "New 1",
            "cuda_total": "79.15 GiB",
            "driver_total": "81559 MiB",
            "int8": "624 TOPS",
            "fp4": "1.2 PFLOPS",
            "scale_up": {"name": "Link", "bandwidth": "300 GB/s", "max_domain": 8},
            "pcie": "31.5 GB/s",
            "tdp": "0.4 kW",
            "num_sms": 108,
            "cache": "40 MiB",
            "compute_capability": 8.0,
            "unified_memory": True,
            "price": [
                {"value": "1.89 USD/h", "provider": "A", "date": "2026-01", "source": "s", "note": "n"},
                {"value": ["1.10 USD/h", "3.00 USD/h"]},
            ],
            "aliases": ["m1"],
            "doubts": "all of it",
            "recalled": ["tdp"],
        },
        {},
    )
    assert gpu.cuda_total_bytes == round(79.15 * GIB)
    assert not gpu.cuda_total_estimated
    assert gpu.driver_total_bytes == 81559 * 2**20
    assert gpu.peak("int8") == 624e12
    assert gpu.peak("fp4") == 1.2e15
    assert gpu.peak("fp8") is None
    assert gpu.scale_up is not None
    assert (gpu.scale_up.bytes_per_s, gpu.scale_up.max_domain) == (300e9, 8)
    assert (gpu.pcie_bytes_per_s, gpu.tdp_watt, gpu.num_sms, gpu.cache_bytes) == (31.5e9, 400, 108, 40 * 2**20)
    assert gpu.compute_capability == "8.0"
    assert gpu.unified_memory
    assert [(price.usd_per_hour, price.usd_per_hour_high) for price in gpu.prices] == [(1.89, None), (1.1, 3.0)]
    assert gpu.prices[0].provider == "A"
    assert gpu.doubts == ("all of it",)


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda mapping: mapping.pop(key)


def _with(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda mapping: mapping.update({key: value})


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (_without("memory"), "memory", "missing"),
        (_without("bandwidth"), "bandwidth", "missing"),
        (_without("source"), "source", "missing"),
        (_without("date"), "date", "missing"),
        (_without("bf16"), "", "state a dense peak"),
        (_with("memory", 80), "memory", "has no unit"),
        (_with("memory", "80"), "memory", "not a number with a unit"),
        (_with("memory", "80 GBs"), "memory", "unknown unit 'GBs'"),
        (_with("memory", "-80 GiB"), "memory", "not a number with a unit"),
        (_with("memory", "0 GiB"), "memory", "out of range"),
        (_with("memory", "nan GiB"), "memory", "not a number with a unit"),
        (_with("memory", "1e90 GiB"), "memory", "out of range"),
        (_with("memory", "9" * 400 + " GiB"), "memory", "not a number"),
        (_with("memory", None), "memory", "has no unit"),
        (_with("memory", True), "memory", "has no unit"),
        (_with("bandwidth", "2039 GB"), "bandwidth", "unknown unit 'GB'"),
        (_with("bf16", "312 GB/s"), "bf16", "unknown unit"),
        (_with("fp16", "312 TFLOPS"), "fp16", "unknown key"),
        (_with("cuda_total", "81 GiB"), "cuda_total", "exceeds memory"),
        (_with("num_sms", 0), "num_sms", "must be from 1"),
        (_with("num_sms", math.nan), "num_sms", "found nan"),
        (_with("scale_up", {"name": "x"}), "scale_up.bandwidth", "missing"),
        (_with("scale_up", "NVLink"), "scale_up", "expected a mapping"),
        (_with("price", {"source": "x"}), "price.value", "missing"),
        (_with("price", {"value": ["3 USD/h", "1 USD/h"]}), "price.value", "ends below"),
        (_with("price", {"value": ["3 USD/h"]}), "price.value", "range of two"),
        (_with("price", [{"value": 3}]), "price.0.value", "has no unit"),
        (_with("unified_memory", "yes"), "unified_memory", "true or false"),
        (_with("aliases", [4090]), "aliases.0", "expected text"),
    ],
)
def test_a_fault_is_named_with_its_key_path(change: Callable[[dict[str, Any]], None], place: str, message: str) -> None:
    mapping = copy.deepcopy(entry())
    change(mapping)
    with pytest.raises(CatalogError) as caught:
        gpu_from_mapping("mine", mapping, {})
    prefix = "gpus.mine" + (f".{place}: " if place else ": ")
    assert [fault for fault in caught.value.faults if fault.startswith(prefix) and message in fault], (
        caught.value.faults
    )


def test_a_gpu_without_peak_is_accepted_when_it_says_why() -> None:
    mapping = entry() | {"doubts": ["not published"]}
    del mapping["bf16"]
    assert gpu_from_mapping("mine", mapping, {}).peak_flop_per_s == ()


def test_the_estimate_takes_the_nearest_relatives_and_the_better_base() -> None:
    known = [
        entry() | {"architecture": "Ada AD102", "vendor": "N", "cuda_total": "72 GiB", "driver_total": "75 GiB"},
        entry() | {"architecture": "Ada AD104", "vendor": "N", "cuda_total": "64 GiB"},
        entry() | {"architecture": "Volta", "vendor": "N", "cuda_total": "79 GiB"},
    ]
    ratios = cuda_ratios(known)
    assert ratios["driver_total/Ada AD102"] == 0.96
    assert ratios["memory/Ada AD102"] == 0.9
    assert ratios["memory/Ada"] == 0.85
    assert ratios["memory/N"] == 0.9

    def estimate(**keys: str) -> float:
        return gpu_from_mapping("mine", entry() | keys, ratios).cuda_total_bytes / GIB

    assert estimate(architecture="Ada AD102") == pytest.approx(72)
    assert estimate(architecture="Ada AD102", driver_total="70 GiB") == pytest.approx(70 * 0.96)
    assert estimate(architecture="Ada AD103") == pytest.approx(68)
    assert estimate(architecture="Hopper", vendor="N") == pytest.approx(72)
    assert estimate(architecture="Hopper", vendor="M") == pytest.approx(72)


def test_every_shipped_gpu_reads_and_states_what_answers_need(catalog: Catalog) -> None:
    names = catalog.gpu_names()
    assert len(names) == 84
    for name in names:
        gpu = catalog.gpu(name).gpu
        assert gpu.source
        assert gpu.date
        assert 0.7 < gpu.cuda_total_bytes / gpu.memory_bytes <= 1, name
        assert set(dict(gpu.peak_flop_per_s)) <= set(PRECISIONS)
        assert gpu.peak_flop_per_s or any("peak" in doubt for doubt in gpu.doubts), name
        assert all(price.source and price.date and price.provider for price in gpu.prices), name


def test_every_estimated_total_prints_a_warning(catalog: Catalog) -> None:
    estimated = [entry for entry in map(catalog.gpu, catalog.gpu_names()) if entry.gpu.cuda_total_estimated]
    assert len(estimated) > 20
    for found in estimated:
        assert any("CUDA reports" in warning for warning in found.warnings), found.gpu.name


@pytest.mark.parametrize(
    ("name", "cuda_gib"),
    [
        # Totals printed by engines in public logs.
        ("a100-80gb", 79.15),
        ("h100", 79.15),
        ("h200", 139.8),
        ("l4", 22.05),
        ("rtx-4090", 23.65),
        ("b200", 178.4),
        ("mi300x", 191.57),
        ("dgx-spark", 120.65),
    ],
)
def test_the_total_that_cuda_reports(catalog: Catalog, name: str, cuda_gib: float) -> None:
    gpu = catalog.gpu(name).gpu
    assert gpu.cuda_total_bytes / GIB == pytest.approx(cuda_gib, rel=1e-4)
    assert not gpu.cuda_total_estimated


@pytest.mark.parametrize(
    ("name", "flop_per_byte"),
    [("a100-80gb", 153.0), ("h100", 295.3), ("h200", 206.1)],
)
def test_the_crossovers_of_the_datasheets(catalog: Catalog, name: str, flop_per_byte: float) -> None:
    gpu = catalog.gpu(name).gpu
    peak = gpu.peak("bf16")
    assert peak is not None
    assert peak / gpu.bandwidth_bytes_per_s == pytest.approx(flop_per_byte, abs=0.1)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h100", "h100-sxm5-80gb"),
        ("H100", "h100-sxm5-80gb"),
        ("nvidia-h100", "h100-sxm5-80gb"),
        ("H100-80GB", "h100-sxm5-80gb"),
        ("H100 SXM", "h100-sxm5-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("h100-pcie", "h100-pcie-80gb"),
        ("a100", "a100-sxm4-80gb"),
        ("a100-80gb", "a100-sxm4-80gb"),
        ("A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("nvidia_a100_80gb", "a100-sxm4-80gb"),
        ("a100-40gb", "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("nvidia-h200", "h200-sxm-141gb"),
        ("b200", "b200-sxm-180gb"),
        ("rtx4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("rtx6000-ada", "rtx-6000-ada"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("l4", "l4"),
        ("l40s", "l40s"),
        ("NVIDIA L40S", "l40s"),
        ("mi300x", "mi300x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("gb10", "dgx-spark-gb10"),
        ("dgx-spark", "dgx-spark-gb10"),
        ("Tesla T4", "t4"),
        ("v100", "v100-sxm2-32gb"),
        ("tpu v5e", "tpu-v5e"),
        ("m3-ultra", "apple-m3-ultra"),
    ],
)
def test_the_names_people_type(catalog: Catalog, typed: str, name: str) -> None:
    assert catalog.gpu(typed).gpu.name == name


def test_recalled_headlines_warn_and_sound_entries_do_not(catalog: Catalog) -> None:
    assert catalog.gpu("h100").warnings == ()
    assert catalog.gpu("a100-80gb").warnings == ()
    assert any("recalled" in warning for warning in catalog.gpu("h800").warnings)
    assert any("fp16" in warning for warning in catalog.gpu("t4").warnings)


def test_twenty_parts_and_more_have_a_dated_price_and_the_popular_ones_several(catalog: Catalog) -> None:
    dated, several = [], []
    for name in catalog.gpu_names():
        prices = catalog.gpu(name).gpu.prices
        if any(day_of(price.date) is not None and price.source for price in prices):
            dated.append(name)
        if len({price.provider for price in prices}) > 1:
            several.append(name)
    assert len(dated) >= 40
    assert len(several) >= 20
    assert {"a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "l40s", "mi300x"} <= set(several)


def test_a_price_of_the_catalog_is_within_a_factor_of_ten_of_the_others_of_its_part(catalog: Catalog) -> None:
    for name in catalog.gpu_names():
        standing = standing_of(catalog.gpu(name).gpu.prices)
        if standing is not None:
            assert standing.high_usd_per_hour < 10 * standing.low_usd_per_hour, name
            assert day_of(standing.price.date) is not None, name


@pytest.mark.skipif(not FACTS.exists(), reason="the compiled facts are not beside this checkout")
def test_headline_figures_agree_with_the_facts(catalog: Catalog) -> None:
    import yaml  # noqa: PLC0415

    words = {"bf16": "fp16_bf16_tensor_fp32acc", "fp8": "fp8_tensor", "int8": "int8_tops", "fp4": "fp4_tensor"}
    facts = yaml.load(FACTS.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    assert len(facts["gpus"]) <= len(catalog.gpu_names())
    for fact in facts["gpus"]:
        gpu = catalog.gpu(fact["id"]).gpu
        assert gpu.memory_bytes == fact["memory_gb_marketed"] * GIB
        assert gpu.bandwidth_bytes_per_s == pytest.approx(fact["memory_bandwidth_gbs"] * 1e9)
        for precision, word in words.items():
            assert gpu.peak(precision) == pytest.approx(
                fact["dense_tflops"][word] and fact["dense_tflops"][word] * 1e12
            )
        known = fact["memory_reported"]["cuda_total_gib"]
        if known:
            assert gpu.cuda_total_bytes / GIB == pytest.approx(known)
        recalled = set(fact["recalled_not_reread"])
        headline = {"all", "all but memory", "memory_bandwidth_gbs", "memory_gb_marketed"}
        if gpu.peak_flop_per_s:
            headline.add("dense_tflops")
        assert not recalled & headline or any("recalled" in doubt for doubt in gpu.doubts), gpu.name

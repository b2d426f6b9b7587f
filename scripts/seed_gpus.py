"""Write gpus.yaml from a compiled sheet of accelerator facts: ``python scripts/seed_gpus.py FACTS > gpus.yaml``.

The sheet holds figures with their sources. This script translates its words to those of the catalog, adds the names
people type, and turns what the sheet says was recalled rather than read into doubts. Everything in the output can be
edited by hand afterwards; the script is kept so that a newer sheet can be compared with the catalog.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

HEADER = """\
# Accelerators known to infcalc. To add one, add an entry; only memory, bandwidth, one peak, source and date are needed.
#
# memory        marketed memory. The number on the box counts GiB for every part here (an "80GB" A100 has 81920 MiB).
# driver_total  what the driver's tool prints as total (about 6 % less than marketed on GDDR parts with ECC on).
# cuda_total    what CUDA reports as total: the base of the engines' memory fractions. Without it, infcalc takes the
#               share that the nearest relatives have, and says so.
# bf16 ...      dense peaks with FP32 accumulation; half of what datasheets print "with sparsity".
# scale_up      bandwidth per direction, and how many devices are reachable at that speed.
# pcie          per direction, after encoding.
# price         on-demand list prices per accelerator and hour; they move quickly.
# doubts        printed whenever the entry is used.
# recalled      keys of secondary figures that were not read again in a source; not printed.
"""

ALIASES: dict[str, list[str]] = {
    "a100-sxm4-40gb": ["a100-40", "a100-40gb", "NVIDIA A100-SXM4-40GB"],
    "a100-sxm4-80gb": [
        "a100",
        "a100-80",
        "a100-80gb",
        "a100-sxm",
        "a100-sxm-80gb",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA A100",
    ],
    "a100-pcie-40gb": ["NVIDIA A100-PCIE-40GB"],
    "a100-pcie-80gb": ["a100-pcie", "NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-80GB"],
    "a800-sxm4-80gb": ["a800", "a800-80gb", "NVIDIA A800-SXM4-80GB"],
    "a30": ["NVIDIA A30", "a30-24gb"],
    "a40": ["NVIDIA A40", "a40-48gb"],
    "a16": ["NVIDIA A16"],
    "a10": ["NVIDIA A10", "a10-24gb"],
    "a10g": ["NVIDIA A10G", "a10g-24gb"],
    "t4": ["NVIDIA T4", "Tesla T4", "t4-16gb"],
    "v100-sxm2-16gb": ["v100-16gb", "Tesla V100-SXM2-16GB"],
    "v100-sxm2-32gb": ["v100", "v100-32gb", "v100-sxm2", "Tesla V100-SXM2-32GB"],
    "v100-pcie-32gb": ["v100-pcie", "Tesla V100-PCIE-32GB"],
    "h100-sxm5-80gb": [
        "h100",
        "h100-80",
        "h100-80gb",
        "h100-sxm",
        "h100-sxm5",
        "h100-sxm-80gb",
        "h100-80gb-sxm",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA H100",
    ],
    "h100-pcie-80gb": ["h100-pcie", "NVIDIA H100 PCIe"],
    "h100-nvl-94gb": ["h100-nvl", "NVIDIA H100 NVL"],
    "h200-sxm-141gb": ["h200", "h200-141gb", "h200-sxm", "h200-sxm5-141gb", "NVIDIA H200"],
    "h200-nvl-141gb": ["h200-nvl", "NVIDIA H200 NVL"],
    "gh200-96gb": ["gh200", "gh200-480gb", "NVIDIA GH200 480GB"],
    "gh200-144gb": ["NVIDIA GH200 144G HBM3e"],
    "h20-96gb": ["h20", "NVIDIA H20"],
    "h800-sxm5-80gb": ["h800", "h800-80gb", "NVIDIA H800"],
    "b200-sxm-180gb": ["b200", "b200-180gb", "b200-192gb", "b200-sxm", "NVIDIA B200"],
    "b300-sxm": ["b300", "b300-288gb", "NVIDIA B300 SXM6 AC", "NVIDIA B300"],
    "gb200": ["gb200-nvl72", "NVIDIA GB200"],
    "gb300": ["gb300-nvl72", "NVIDIA GB300"],
    "l4": ["NVIDIA L4", "l4-24gb"],
    "l20": ["NVIDIA L20"],
    "l40": ["NVIDIA L40", "l40-48gb"],
    "l40s": ["NVIDIA L40S", "l40s-48gb"],
    "rtx-4000-ada": ["rtx4000-ada", "rtx4000ada", "NVIDIA RTX 4000 Ada Generation"],
    "rtx-5000-ada": ["rtx5000-ada", "rtx5000ada", "NVIDIA RTX 5000 Ada Generation"],
    "rtx-6000-ada": ["rtx6000-ada", "rtx6000ada", "a6000-ada", "NVIDIA RTX 6000 Ada Generation"],
    "rtx-a6000": ["a6000", "rtxa6000", "NVIDIA RTX A6000"],
    "rtx-3090": ["rtx3090", "3090", "NVIDIA GeForce RTX 3090"],
    "rtx-4090": ["rtx4090", "4090", "NVIDIA GeForce RTX 4090"],
    "rtx-4090d": ["rtx4090d", "4090d", "NVIDIA GeForce RTX 4090 D"],
    "rtx-5090": ["rtx5090", "5090", "NVIDIA GeForce RTX 5090"],
    "rtx-pro-6000-blackwell-ws": [
        "rtx-pro-6000",
        "rtx-pro-6000-blackwell",
        "rtxpro6000",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    ],
    "rtx-pro-6000-blackwell-server": ["rtx-pro-6000-server", "NVIDIA RTX PRO 6000 Blackwell Server Edition"],
    "dgx-spark-gb10": ["gb10", "dgx-spark", "spark", "NVIDIA GB10"],
    "jetson-agx-orin-64gb": ["jetson-agx-orin", "agx-orin"],
    "jetson-agx-thor": ["jetson-thor", "agx-thor", "t5000"],
    "mi210": ["AMD Instinct MI210"],
    "mi250x": ["AMD Instinct MI250X"],
    "mi300x": ["AMD Instinct MI300X", "mi300x-192gb"],
    "mi325x": ["AMD Instinct MI325X", "mi325x-256gb"],
    "mi350x": ["AMD Instinct MI350X"],
    "mi355x": ["AMD Instinct MI355X"],
    "gaudi2": ["hl-225", "Intel Gaudi 2"],
    "gaudi3": ["hl-325", "Intel Gaudi 3"],
    "arc-pro-b60": ["b60", "Intel Arc Pro B60"],
    "tpu-v5e": ["v5e", "tpu-v5-lite"],
    "tpu-v5p": ["v5p"],
    "tpu-v6e": ["v6e", "trillium"],
    "tpu-v7x": ["tpu7x", "tpu-v7", "ironwood"],
    "trainium1": ["trn1", "trainium"],
    "inferentia2": ["inf2"],
    "trainium2": ["trn2"],
    "apple-m2-max": ["m2-max"],
    "apple-m2-ultra": ["m2-ultra"],
    "apple-m3-max": ["m3-max"],
    "apple-m3-ultra": ["m3-ultra"],
    "apple-m4-max": ["m4-max"],
    "apple-m5-max": ["m5-max"],
    "ascend-910b": ["910b"],
    "ascend-910c": ["910c"],
    "ascend-950dt": ["950dt"],
    "mi455x": ["AMD Instinct MI455X"],
    "rubin-sxm": ["rubin", "vr200", "NVIDIA Rubin"],
}

PEAKS = {
    "fp32_vector": "fp32",
    "tf32_tensor": "tf32",
    "fp16_bf16_tensor_fp32acc": "bf16",
    "fp8_tensor": "fp8",
    "int8_tops": "int8",
    "fp4_tensor": "fp4",
    "int4_tops": "int4",
}
KEYS = PEAKS | {
    "sm_or_cu_count": "num_sms",
    "last_level_cache_mb": "cache",
    "tdp_w": "tdp",
    "interconnect": "scale_up",
    "max_domain": "scale_up",
    "memory_reported": "driver_total",
}
HEADLINES = {
    "all": "all figures were recalled from the vendor's datasheet, not read again",
    "all but memory": "all figures but the memory were recalled from the vendor's datasheet, not read again",
    "dense_tflops": "the dense peaks were recalled from the vendor's datasheet, not read again",
    "dense_tflops exact digits": "the last digits of the dense peaks were recalled, not read again",
    "memory_bandwidth_gbs": "the bandwidth was recalled from the vendor's datasheet, not read again",
    "memory_gb_marketed": "the marketed memory was recalled, not read again",
}

WORKING_SET = "macOS lets the GPU use 2/3 to 3/4 of memory unless iogpu.wired_limit_mb is raised; taken as 3/4"
NO_BF16 = "no bf16 tensor path: the 16-bit peak is that of fp16, and models run as fp16"
# Totals that the sheet states only in the words of a note, in GiB.
CUDA_TOTALS = {
    "gaudi2": 94.6,
    "gaudi3": 126.5,
    "mi210": 63.98,
    "mi250x": 127.96,
    "tpu-v5e": 15.75,
    "tpu-v6e": 31.25,
    "jetson-agx-orin-64gb": 61.5,
    "jetson-agx-thor": 122,
}
DRIVER_TOTALS_MIB = {"ascend-910b": 65536}
DOUBTS = {
    "a100-pcie-40gb": ["cuda_total was recalled (39.39 to 39.56 GiB), not read"],
    "t4": [NO_BF16],
    "v100-sxm2-16gb": [NO_BF16],
    "v100-sxm2-32gb": [NO_BF16],
    "v100-pcie-32gb": [NO_BF16],
    "h100-pcie-80gb": ["the datasheet prints 2 TB/s; 2039 GB/s is computed from clock and width"],
    "b200-sxm-180gb": ["both 7.7 and 8 TB/s are published for its bandwidth"],
    "b300-sxm": [
        "7.75 and 8 TB/s are published for its bandwidth; dense fp4 appears as 12600 to 15000 TFLOPS",
        "288 GB are on the package; about 270 GB are exposed",
    ],
    "gb300": ["279 GB usable of 288 GB on the package"],
    "dgx-spark-gb10": ["dense bf16 is not published; 1 PFLOPS fp4 is with sparsity"],
    "mi250x": ["two dies that software sees as separate 64 GB devices, each with half of every figure"],
    "gaudi3": ["1835 TFLOPS assumes 1750 MHz; shipping parts run the matrix engine at 1600 MHz, which gives 1677"],
    "trainium2": ["direction of the link bandwidth is not declared; half of the headline is taken"],
    "apple-m3-ultra": ["no peak rate is published for its GPU"],
    "apple-m5-max": ["no peak rate is published for its GPU; figures come from a secondary source only"],
    "ascend-910b": ["variants 910B1 to B4 differ; 280 to 414 TFLOPS of fp16 are quoted"],
    "ascend-910c": ["two dies that software sees as separate 64 GB devices; 752 to 800 TFLOPS are quoted"],
    "ascend-950dt": ["announced, not measured; 144 GB is also published"],
    "mi455x": ["pre-release projection; fp8 and fp4 are half of figures that look sparse"],
    "rubin-sxm": ["pre-release figures"],
}
RECALLED_TOTALS = "cuda_total was recalled, not read"
# ConnectX-7, 200 Gb/s: the link between two units.
LINK_GB_PER_S = {"dgx-spark-gb10": ("ConnectX-7 200 Gb/s", 25.0)}


def number(value: float) -> str:
    """Return a figure without needless digits."""
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"  # noqa: PLR2004


def clean(text: str) -> str:
    """Return a source without remarks on how it was read."""
    text = text.replace("PyPI ", "").replace("; stored search excerpts", "")
    if text.startswith("vendor datasheet value"):
        return "vendor datasheet (recalled)"
    text = re.sub(r"[;,] (pages )?(read via )?public copy", "", text)
    text = re.sub(r",? read \d{4}-\d\d-\d\ds?", "", text)
    return re.sub(r" ?\((public copy)?(; )?\)", "", text).replace("(public copy; ", "(")


def sources(fact: dict[str, Any]) -> str:
    """Return the sources of an entry; recomputations are checks, not sources."""
    return "; ".join(clean(text) for text in fact["source"] if not text.startswith("own recomputation"))


def quote(text: str) -> str:
    """Return text as a YAML scalar on one line, quoted only where YAML asks for it."""
    return yaml.safe_dump(text, width=10**6, allow_unicode=True).removesuffix("...\n").strip()


def price_lines(prices: list[dict[str, Any]]) -> list[str]:
    """Return the prices, newest first."""
    lines = ["    price:"] if prices else []
    ordered = sorted(prices, key=lambda price: "".join(re.findall(r"\d{4}-?\d*", price["as_of"])), reverse=True)
    for price in ordered:
        ends = price.get("usd_per_hour_per_accelerator_range")
        value = price.get("usd_per_hour_per_accelerator")
        text = f"[{', '.join(f'{number(end)} USD/h' for end in ends)}]" if ends else f"{number(value)} USD/h"
        provider = " ".join(part for part in (price["provider"], price.get("instance")) if part)
        lines.append(f"      - value: {text}")
        lines.append(f"        provider: {quote(provider)}")
        lines.append(f"        date: {quote(price['as_of'])}")
        lines.append(f"        source: {quote(clean(price['source']))}")
        if price.get("note"):
            lines.append(f"        note: {quote(clean(price['note']))}")
    return lines


def memory_lines(fact: dict[str, Any], doubts: list[str]) -> list[str]:
    """Return memory, totals and bandwidth; what is doubtful about the totals is added to ``doubts``."""
    name, reported = fact["id"], fact["memory_reported"]
    lines = [f"    memory: {number(fact['memory_gb_marketed'])} GiB # {fact['memory_type']}"]
    driver_mib = reported["driver_total_mib"] or DRIVER_TOTALS_MIB.get(name)
    if driver_mib:
        note = f" # {reported['driver_note']}" if reported.get("driver_note") else ""
        lines.append(f"    driver_total: {driver_mib} MiB{note}")
    cuda_gib = reported["cuda_total_gib"] or CUDA_TOTALS.get(name)
    if fact["vendor"] == "Apple":
        cuda_gib = fact["memory_gb_marketed"] * 3 / 4
        doubts.append(WORKING_SET)
    elif name in CUDA_TOTALS:
        doubts.append(RECALLED_TOTALS)
    if cuda_gib:
        note = f" # {reported['cuda_note']}" if reported.get("cuda_note") else ""
        lines.append(f"    cuda_total: {number(cuda_gib)} GiB{note}")
    lines.append(f"    bandwidth: {number(fact['memory_bandwidth_gbs'])} GB/s")
    return lines


def peak_lines(fact: dict[str, Any]) -> list[str]:
    """Return the dense peaks."""
    units = {key: "TOPS" if key.startswith("int") else "TFLOPS" for key in PEAKS.values()}
    peaks = {key: fact["dense_tflops"][word] for word, key in PEAKS.items()}
    lines = [f"    {key}: {number(value)} {units[key]}" for key, value in peaks.items() if value]
    note = fact["dense_tflops"].get("note")
    return [*lines, f"    # {note}"] if note else lines


def link_lines(fact: dict[str, Any]) -> list[str]:
    """Return the scale-up link and PCIe."""
    link = fact["interconnect"]
    lines = []
    name, rate = LINK_GB_PER_S.get(fact["id"], (link["scale_up"], link["scale_up_gbs_per_direction"]))
    if rate:
        domain = f", max_domain: {link['max_domain']}" if link["max_domain"] > 1 else ""
        lines.append(f"    scale_up: {{name: {flow(name)}, bandwidth: {number(rate)} GB/s{domain}}}")
        if link.get("note"):
            lines.append(f"    # link: {link['note']}")
    if link["pcie_gbs_per_direction"]:
        lines.append(f"    pcie: {number(link['pcie_gbs_per_direction'])} GB/s # {link['pcie']}")
    return lines


def chip_lines(fact: dict[str, Any]) -> list[str]:
    """Return power, size and generation of the chip."""
    plain = (("tdp", "tdp_w", " W"), ("num_sms", "sm_or_cu_count", ""), ("cache", "last_level_cache_mb", " MiB"))
    lines = [f"    {key}: {number(fact[word])}{unit}" for key, word, unit in plain if fact[word]]
    if fact["compute_capability"]:
        lines.append(f"    compute_capability: '{fact['compute_capability']}'")
    if "unified" in fact["memory_type"]:
        lines.append("    unified_memory: true")
    return lines


def doubt_lines(fact: dict[str, Any], doubts: list[str], written: list[str]) -> list[str]:
    """Return doubts, recalled keys among those ``written``, and the sheet's notes."""
    recalled = ["int4"] if fact["id"] == "l40s" else []
    present = {line.strip().partition(":")[0] for line in written}
    for word in fact["recalled_not_reread"]:
        if word in HEADLINES and (word != "dense_tflops" or present & set(PEAKS.values())):
            doubts.append(HEADLINES[word])
        elif KEYS.get(word) in present - set(recalled):
            recalled.append(KEYS[word])
    lines = ["    doubts:", *(f"      - {quote(doubt)}" for doubt in doubts)] if doubts else []
    if recalled:
        lines.append(f"    recalled: [{', '.join(recalled)}]")
    if fact["notes"]:
        lines.append(f"    # {fact['notes']}")
    return lines


def entry_lines(fact: dict[str, Any], date: str) -> list[str]:
    """Return the catalog entry of one accelerator."""
    name = fact["id"]
    doubts = list(DOUBTS.get(name, []))
    lines = [
        f"  {name}:",
        f"    title: {quote(fact['name'])}",
        f"    vendor: {fact['vendor']}",
        f"    architecture: {quote(fact['architecture'])}",
        *memory_lines(fact, doubts),
        *peak_lines(fact),
        *link_lines(fact),
        *chip_lines(fact),
        *price_lines(fact["cloud_prices"]),
        f"    aliases: [{', '.join(flow(alias) for alias in ALIASES[name])}]",
        f"    source: {quote(sources(fact))}",
        f"    date: '{date}'",
    ]
    return lines + doubt_lines(fact, doubts, lines)


def flow(text: str) -> str:
    """Return text as a YAML scalar inside a flow collection; names of digits only stay text."""
    return quote(text) if not re.search(r"[,;:\[\]{}]", text) else "'" + text.replace("'", "''") + "'"


def main() -> None:
    """Print the catalog of the sheet named on the command line."""
    sheet = yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))
    lines = [HEADER + "gpus:"]
    for fact in sheet["gpus"]:
        lines += entry_lines(fact, str(sheet["generated"]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

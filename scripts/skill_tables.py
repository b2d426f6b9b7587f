"""The tables of the skill document: each figure is read from the JSON of a command, as a reader would read it."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

from infcalc.cli.app import run
from infcalc.diagnosis.rules import RULES
from infcalc.spec.weights import weight_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GPUS = ("a100-80gb", "h100", "h200", "b200", "mi300x", "l40s", "rtx4090")
SMALL = "-m llama3.1-8b -n 1"
LENGTHS = "--input-tokens 1000 --output-tokens 300"
SPREAD = "--input-tokens lognormal:mean=1000,cv=1 --output-tokens lognormal:mean=300,cv=1"
DEPLOYMENTS = (
    ("llama3.1-8b", "l40s", 1),
    ("llama3.1-8b", "a100-80gb", 1),
    ("llama3.1-8b", "h100", 1),
    ("llama3.3-70b", "a100-80gb", 4),
    ("llama3.3-70b", "h100", 4),
    ("qwen3-30b-a3b", "h100", 1),
    ("deepseek-v3", "h200", 8),
)
MODELS = (
    ("llama3.1-8b", "h100", 1),
    ("qwen3-32b", "h100", 2),
    ("llama3.3-70b", "h100", 4),
    ("qwen3-30b-a3b", "h100", 1),
    ("gpt-oss-120b", "h100", 2),
    ("deepseek-v3", "h200", 8),
)


@cache
def ask(command: str) -> dict[str, Any]:
    """Return ``result`` of ``infcalc COMMAND --json``.

    Raises:
        RuntimeError: the command does not answer with 0, or with 4 (a limit of the question is not kept).

    """
    out, talk = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(talk):
        code = run([*shlex.split(command), "--json"])
    if code not in {0, 4}:
        raise RuntimeError(f"infcalc {command} ended with {code}: {talk.getvalue()}")
    found: dict[str, Any] = json.loads(out.getvalue())["result"]
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, figures to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _on(model: str, gpu: str, count: int) -> str:
    return f"-m {model} -g {gpu} -n {count}"


def _named(model: str, gpu: str, count: int) -> str:
    return f"{model}, {count} x {gpu}"


def _ms(seconds: float) -> str:
    # Three figures, as far as there are tenths.
    text = f"{seconds * 1e3:,.1f}"
    return text if len(text) <= len("99.9") else f"{seconds * 1e3:,.0f}"


def _times(factor: float) -> str:
    return f"{factor:.2f}x"


def crossovers() -> str:
    """Batch at which a matrix multiplication turns from memory to compute, by GPU and precision."""
    gpus = " ".join(f"-g {name}" for name in GPUS)
    found = {(one["gpu"], one["precision"]): one for one in ask(f"roofline {SMALL} {gpus} --batch 1")["gpus"]}
    four_bits = weight_format("awq").bits

    def batch(gpu: str, precision: str, bits: float) -> str:
        one = found.get((gpu, precision))
        return f"{one['crossover_flop_per_byte'] * bits / 8 / 2:,.0f}" if one else "-"

    def ridge(gpu: str, precision: str) -> str:
        one = found.get((gpu, precision))
        return f"{one['crossover_flop_per_byte']:,.0f}" if one else "-"

    names = list(dict.fromkeys(gpu for gpu, _ in found))
    return table(
        ("GPU", "FLOP/B bf16", "FLOP/B fp8", "B* bf16", "B* fp8 weights and units", "B* 4-bit weights, 16-bit units"),
        (
            (
                name,
                ridge(name, "bf16"),
                ridge(name, "fp8"),
                batch(name, "bf16", 16),
                batch(name, "fp8", 8),
                batch(name, "bf16", four_bits),
            )
            for name in names
        ),
    )


def _read_bytes(deployment: str, batch: int, context: int) -> tuple[float, str]:
    for point in ask(f"roofline {deployment} --batch {batch} --context {context}")["points"]:
        if point["phase"] == "decode" and point["attention_io"] == "flash":
            return point["bytes"], point["bound_by"]
    raise LookupError(f"no decode point of {deployment}")


def kv_budget() -> str:
    """Bytes per token, and where the cache outweighs the weights: in memory, and in what a step reads."""
    rows = []
    for model, gpu, count in MODELS:
        deployment = _on(model, gpu, count)
        per_token = ask(f"kv {deployment}")["kv_bytes_per_token"]
        memory = ask(f"memory {deployment} --context 8k")
        weights = ask(f"show {model}")["derived"]["weights_bytes"]
        contexts = []
        for batch in (1, 32):
            near, far = (_read_bytes(deployment, batch, context)[0] for context in (8192, 16384))
            slope = (far - near) / 8192
            contexts.append((near - slope * 8192) / slope)
        rows.append(
            (
                _named(model, gpu, count),
                f"{per_token:,}",
                f"{weights / 2**30:,.1f}",
                f"{weights / per_token:,.0f}",
                f"{memory['sequences_low']:,}",
                *(f"{context:,.0f}" for context in contexts),
            )
        )
    return table(
        (
            "deployment",
            "KV B/token, bf16",
            "weights GiB",
            "cached tokens that weigh as much",
            "sequences of 8k (low)",
            "step reads as much KV as weights at context, batch 1",
            "batch 32",
        ),
        rows,
    )


def memory_bound() -> str:
    """Say which deployments decode bound by memory at a large batch over long contexts."""
    batch, context = 256, 8192
    bound = [one for one in MODELS if _read_bytes(_on(*one), batch, context)[1] == "memory"]
    names = "each" if len(bound) == len(MODELS) else ", ".join(model for model, _, _ in bound)
    return f"at batch {batch} and {context:,} tokens: {names} of the {len(MODELS)} models in step 4"


def chunks() -> str:
    """How long a step with so many prompt tokens takes: what a decoding user waits."""
    sizes = (512, 2048, 8192)
    rows = []
    for deployment in DEPLOYMENTS:
        steps = [
            ask(
                f"estimate {_on(*deployment)} --batch 1 --input-tokens {size} --output-tokens 300 "
                "--max-num-batched-tokens 8192"
            )["prefill_step"]
            for size in sizes
        ]
        plain = ask(f"estimate {_on(*deployment)} --batch 32 --input-tokens 1000 --output-tokens 300")["step"]
        rows.append(
            (
                _named(*deployment),
                _ms(plain["time_s"]["value"]),
                *(_ms(step["time_s"]["value"]) for step in steps),
            )
        )
    return table(("deployment", "decode step, batch 32", *(f"{size:,} prompt tokens, ms" for size in sizes)), rows)


def prefix_gains() -> str:
    """Throughput with part of each prompt found, beside the formula."""
    shares = (0.5, 0.9)
    rows = []
    for prompt, answer in ((4000, 20), (4000, 200), (1500, 300), (500, 500)):
        load = f"estimate {SMALL} -g h100 --concurrency 64 --input-tokens {prompt} --output-tokens {answer}"
        plain = ask(load)
        part = plain["prefill_time_fraction"]
        cells = []
        for share in shares:
            rate = ask(f"{load} --prefix-hit {share}")["output_tokens_per_s"]["value"]
            cells += [_times(rate / plain["output_tokens_per_s"]["value"]), _times(1 / (1 - part * share))]
        rows.append((f"{prompt:,} in, {answer} out", f"{part:.2f}", *cells))
    return table(("load", "P", "h = 0.5", "formula", "h = 0.9", "formula"), rows)


def weight_formats() -> str:
    """Step time in 16 bit over that in fewer bits, by batch."""
    batches = (1, 16, 64, 256)
    rows = []
    for gpu in ("a100-80gb", "h100", "l40s"):
        for weights in ("fp8", "awq"):
            cells = []
            for batch in batches:
                plain, narrow = (
                    ask(f"estimate {SMALL} -g {gpu} --batch {batch} {LENGTHS} --weights {one}")
                    for one in ("bf16", weights)
                )
                room = all(one["fits"] and one["max_batch"] >= batch for one in (plain, narrow))
                cells.append(_ratio(plain, narrow, "step") if room else "-")
            plain, narrow = (
                ask(f"estimate {SMALL} -g {gpu} --batch 1 {LENGTHS} --weights {one}") for one in ("bf16", weights)
            )
            rows.append((f"{gpu}, {weights}", *cells, _ratio(plain, narrow, "prefill_step")))
    return table(("GPU, weights", *(f"decode, batch {batch}" for batch in batches), "prompt of 1,000"), rows)


def _ratio(plain: dict[str, Any], narrow: dict[str, Any], key: str) -> str:
    return _times(plain[key]["time_s"]["value"] / narrow[key]["time_s"]["value"])


def kv_formats() -> str:
    """Room of an fp8 cache, whether the engine computes in it, and what a step gains by context."""
    batch, contexts = 8, (1000, 8000, 32000)
    rows = []
    for gpu in ("a100-80gb", "h100", "mi300x", "l40s"):
        found = ask(f"concurrency {SMALL} -g {gpu} --quant fp16,fp8 --context 8k")["rows"]
        plain, narrow = found
        load = f"{SMALL} -g {gpu} --batch {batch}"
        computes = narrow["verdict_status"] == "supported"
        cells = []
        for context in contexts:
            sixteen, eight = (
                ask(f"estimate {load} --input-tokens {context} --output-tokens 200 --kv-dtype {one}")
                for one in ("bf16", "fp8")
            )
            gain = _times(sixteen["tpot_s"]["value"] / eight["tpot_s"]["value"])
            room = all(one["fits"] and one["max_batch"] >= batch for one in (sixteen, eight))
            cells.append((gain if room else "no room in bf16") if computes else "capacity only")
        rows.append(
            (
                gpu,
                narrow["verdict_status"].replace("_", " "),
                f"{plain['sequences']} -> {narrow['sequences']}",
                *cells,
            )
        )
    return table(
        ("GPU", "fp8 cache in vLLM", "sequences of 8k", *(f"tokens/s, batch {batch} of {one:,}" for one in contexts)),
        rows,
    )


def drafting() -> str:
    """Speedup of drafting by batch, and the largest batch that gains."""
    rows = []
    for deployment in DEPLOYMENTS:
        found = ask(f"speculate {_on(*deployment)} --context 1k")
        rows_of = {row["method"]: row for row in found["rows"]}
        full = {row["method"]: row for row in found["full_load"]}
        cells = []
        for method, batches in (("eagle3", (1, 16, 64)), ("ngram", (1, 64))):
            by_batch = {row["batch"]: row["speedup"] for row in found["by_batch"] if row["method"] == method}
            cells += [_times(by_batch[batch]) for batch in batches]
            cells.append(_pays_up_to(rows_of[method], found["max_batch"]))
            if method == "eagle3":
                cells.append(_times(full[method]["speedup"]))
        rows.append((_named(*deployment), *cells))
    return table(
        (
            "deployment, context 1k",
            "EAGLE-3 at 1",
            "at 16",
            "at 64",
            "pays up to",
            "memory full",
            "n-gram at 1",
            "at 64",
            "pays up to",
        ),
        rows,
    )


def _pays_up_to(row: dict[str, Any], most: int) -> str:
    match row["breakeven"]:
        case "always":
            return f"{most}+"
        case "never":
            return "never"
        case _:
            return str(row["breakeven_batch"])


def tensor_parallel() -> str:
    """How many times as fast two, four and eight GPUs are as one, by link."""
    sizes = (2, 4, 8)
    rows = []
    for gpu in ("h100", "a100-80gb", "h100-pcie", "l40s", "rtx4090"):
        load = f"--batch 16 {LENGTHS}"
        one = ask(f"estimate -m llama3.1-8b -g {gpu} -n 1 {load}")
        many = [ask(f"estimate -m llama3.1-8b -g {gpu} -n {size} {load}") for size in sizes]
        entry = ask(f"show {gpu}")["entry"]
        link = entry.get("scale_up", {})
        wide = link and link["max_domain"] >= max(sizes)
        rows.append(
            (
                gpu,
                link["name"] if wide else f"PCIe {entry['pcie']}",
                one["tpot_s"]["basis"],
                *(_times(one["tpot_s"]["value"] / found["tpot_s"]["value"]) for found in many),
                *(_ratio(one, found, "prefill_step") for found in many),
            )
        )
    return table(("GPU", "link", "basis", *(f"decode TP {n}" for n in sizes), *(f"prompt TP {n}" for n in sizes)), rows)


def headroom() -> str:
    """Percentiles along the load, as parts of the highest stable rate."""
    rows = []
    for deployment, parts in (
        (("llama3.1-8b", "h100", 1), (0.5, 0.8, 0.9, 1.0)),
        (("llama3.3-70b", "h100", 4), (0.8, 1.0)),
    ):
        where = _on(*deployment)
        highest = ask(f"estimate {where} --rate 1 {SPREAD}")["highest_stable_requests_per_s"]["value"]
        for part in parts:
            found = ask(f"simulate {where} --rate {highest * part:.2f} --num-requests 2000 {SPREAD} --no-requests")
            rows.append(
                (
                    _named(*deployment),
                    f"{part:.0%} = {highest * part:.1f}/s",
                    _ms(found["ttft_s"]["p95"]),
                    _ms(found["tpot_s"]["p95"]),
                    _ms(found["itl_s"]["p99"]),
                    f"{found['kv_usage_fraction']['max']:.0%}",
                    str(found["preemptions"]),
                )
            )
    return table(("deployment", "rate", "TTFT p95 ms", "TPOT p95 ms", "ITL p99 ms", "KV at most", "preempted"), rows)


def batch_prices() -> str:
    """USD per million output tokens by requests under way."""
    clients = (1, 16, 64, 256)
    rows = []
    for deployment in DEPLOYMENTS:
        cells = []
        for count in clients:
            found = ask(f"estimate {_on(*deployment)} {LENGTHS} --concurrency {count}")
            cells.append(f"{found['usd_per_million_output_tokens']['value']:.2f} ({_ms(found['tpot_s']['value'])} ms)")
        rows.append((_named(*deployment), *cells))
    return table(("deployment", *(f"{count} under way" for count in clients)), rows)


def pools() -> str:
    """Prefill and decode apart, against the best plain replicas on as many GPUs."""
    rows = []
    for prompt, answer, rate, prefill, decode, limit in (
        (8000, 100, 10, 3, 1, 15),
        (4000, 200, 16, 2, 2, 15),
        (4000, 200, 16, 2, 2, 25),
        (1500, 300, 40, 1, 3, 15),
    ):
        found = ask(
            f"simulate {SMALL} -g h100 --prefill-replicas {prefill} --decode-replicas {decode} --rate {rate} "
            f"--num-requests 400 --input-tokens lognormal:mean={prompt},cv=1 "
            f"--output-tokens lognormal:mean={answer},cv=1 --no-requests --slo ttft=1s,tpot={limit}ms"
        )
        share = ask(f"estimate {SMALL} -g h100 --rate {rate / 4} --input-tokens {prompt} --output-tokens {answer}")
        apart = found["disaggregation"]
        rows.append(
            (
                f"{prompt:,} in, {answer} out, {rate}/s, TPOT {limit} ms",
                f"{share['prefill_time_fraction']:.2f}",
                f"{prefill} + {decode}",
                f"{apart['prefill']['busy_fraction']:.0%}",
                _times(apart["gain_factor"]),
            )
        )
    return table(("load and limit", "prefill share", "pools", "prefill busy", "goodput, pools over plain"), rows)


STEPS_OF_FINDINGS = {
    **dict.fromkeys(("unit-mistaken", "impossible-measurement", "contradictory-figures", "requests-failed"), 2),
    **dict.fromkeys(("graph-capture-missed", "front-end-bound", "client-bound", "cpu-bound"), 2),
    **dict.fromkeys(("slower-than-predicted", "faster-than-predicted"), 2),
    **dict.fromkeys(("engine-refused", "kv-exhausted", "weights-offloaded"), 4),
    **dict.fromkeys(("sequences-capped", "token-budget-too-large", "token-budget-too-small"), 5),
    **dict.fromkeys(("prefix-cache-ineffective", "prefill-bound"), 6),
    **dict.fromkeys(("prefix-cache-spent", "slow-kernels", "weight-only-spent", "decode-bound"), 7),
    "speculation-losing": 8,
    **dict.fromkeys(("tp-over-pcie", "tp-over-network"), 9),
    **dict.fromkeys(("queueing", "uneven-load", "normal"), 11),
    "kv-transfer-waits": 12,
}
"""The step of the document that mends a finding of diagnose, by its symptom."""


def findings() -> str:
    """Return the step of each finding that the rules of diagnose can make, some steps side by side."""
    by_step: dict[int, list[str]] = {}
    for rule in RULES:
        by_step.setdefault(STEPS_OF_FINDINGS[rule.symptom], []).append(f"`{rule.symptom}`")
    cells = [(", ".join(names), str(step)) for step, names in sorted(by_step.items())]
    height = -(-len(cells) // _ABREAST)
    cells += [("", "")] * (_ABREAST * height - len(cells))
    rows = [[text for cell in cells[number::height] for text in cell] for number in range(height)]
    return table(("finding", "step") * _ABREAST, rows).replace("|---:|---:", "|---:|---")


_ABREAST = 3


TABLES = {
    "findings": findings,
    "crossovers": crossovers,
    "kv budget": kv_budget,
    "chunks": chunks,
    "prefix gains": prefix_gains,
    "weight formats": weight_formats,
    "kv formats": kv_formats,
    "drafting": drafting,
    "tensor parallel": tensor_parallel,
    "headroom": headroom,
    "batch prices": batch_prices,
    "pools": pools,
}

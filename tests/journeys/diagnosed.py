"""Small files as benchmarks and servers write them, made from the figures of a case."""

from __future__ import annotations

import json
from typing import Any

from infcalc.api.deployment import Ask
from infcalc.api.diagnosing import diagnose_texts
from infcalc.api.diagnosing_nouns import Diagnosis, Finding
from infcalc.api.offer import Offer


def serving(
    model: str,
    lengths: tuple[int, int],
    clients: int,
    *,
    ttft_ms: float,
    tpot_ms: float,
    num_requests: int | None = None,
    **more: Any,  # noqa: ANN401 - keys of the result
) -> str:
    """Return a result of vllm bench serve whose rates are what its times make of its clients."""
    prompt, answer = lengths
    number = num_requests or 10 * clients
    whole_s = (ttft_ms + tpot_ms * (answer - 1)) / 1000
    rate = clients / whole_s
    record = {
        "backend": "vllm",
        "model_id": model,
        "num_prompts": number,
        "completed": number,
        "request_rate": "inf",
        "max_concurrency": clients,
        "duration": number / rate,
        "total_input_tokens": prompt * number,
        "total_output_tokens": answer * number,
        "request_throughput": rate,
        "output_throughput": rate * answer,
        "mean_ttft_ms": ttft_ms,
        "mean_tpot_ms": tpot_ms,
    }
    return json.dumps(record | more, indent=1)


def metrics(model: str, engine: str = "vllm", **values: float | tuple[float, float]) -> str:
    """Return metrics of a server; a pair is a histogram, as mean and count."""
    lines = []
    for name, value in values.items():
        head = f"{engine}:{name}"
        if isinstance(value, tuple):
            mean, count = value
            lines += [
                f'{head}_sum{{model_name="{model}"}} {mean * count}',
                f'{head}_count{{model_name="{model}"}} {count}',
            ]
        else:
            lines.append(f'{head}{{model_name="{model}"}} {value}')
    return "\n".join(lines) + "\n"


def told(*texts: str, given: Offer | None = None, **asked: Any) -> tuple[Diagnosis, ...]:  # noqa: ANN401 - of Ask
    """Return the diagnoses of texts on a deployment."""
    named = [(f"file{number}", text) for number, text in enumerate(texts)]
    return diagnose_texts(named, Ask(**asked), given).results


def symptoms(one: Diagnosis, *kinds: str) -> list[str]:
    """Return what was found, of these kinds."""
    return [finding.symptom for finding in one.findings if not kinds or finding.kind in kinds]


def faults(one: Diagnosis) -> list[str]:
    """Return what was found to be wrong."""
    return symptoms(one, "fault", "measurement")


def finding(one: Diagnosis, symptom: str) -> Finding:
    """Return a finding by its symptom."""
    return next(found for found in one.findings if found.symptom == symptom)

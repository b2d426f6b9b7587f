"""The JSON of AIPerf and of genai-perf, its forerunner: an object for each metric, with its unit.

Source: aiperf 0.13.0 (profile_export_aiperf.json), genai-perf 0.0.16 (<stem>_genai_perf.json). Inter-token latency is
(latency - TTFT) / (tokens - 1) of each request, TPOT here.
"""

from __future__ import annotations

from typing import Any, Final

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import Gathering, is_statistic, statistic_of
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity, StatedLoad
from infcalc.evidence.serving_keys import engine_of
from infcalc.evidence.spread import lengths_by_percentiles

UNITS_S: Final = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}
TIMES: Final = {
    "time_to_first_token": Quantity.TTFT,
    "inter_token_latency": Quantity.TPOT,
    "request_latency": Quantity.E2E,
}
RATES: Final = {
    "request_throughput": Quantity.REQUESTS_PER_S,
    "output_token_throughput": Quantity.OUTPUT_PER_S,
    "total_token_throughput": Quantity.TOTAL_PER_S,
    "output_token_throughput_per_user": Quantity.PER_USER,
    "goodput": Quantity.GOODPUT,
}
ITL_SAID: Final = "inter_token_latency is (latency - TTFT) / (tokens - 1) of a request: it is tpot_s here"


def is_aiperf(record: dict[str, Any]) -> bool:
    """Return whether an object is a result of one of these tools."""
    metric = record.get("request_latency")
    return isinstance(metric, dict) and "unit" in metric and "request_throughput" in record


def read_aiperf(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one object.

    Raises:
        FileProblem: values that are none, all of them; or a unit that is not known.

    """
    fields = Fields(record)
    run = Gathering(Format.AIPERF, place)
    for key, quantity in TIMES.items():
        part = fields.part(key)
        unit = part.text("unit").lower()
        if key not in fields:
            continue
        if unit not in UNITS_S:
            part.fault("unit", "ms, s, us or ns")
            continue
        for name in part.names():
            if is_statistic(name):
                run.add(quantity, statistic_of(name), part.time_s(name, UNITS_S[unit]), part.named(name))
    for key, quantity in RATES.items():
        part = fields.part(key)
        run.add(quantity, MEAN, part.per_s("avg"), part.named("avg"))
    run.convert(ITL_SAID)
    load, completed, failed, duration_s = _load(run, fields)
    refuse(fields.faults, place)
    return run.run(load, fields, num_completed=completed, num_failed=failed, duration_s=duration_s)


def _load(run: Gathering, fields: Fields) -> tuple[StatedLoad, int | None, int | None, float | None]:
    completed, failed = (fields.part(key).whole("avg") for key in ("request_count", "error_request_count"))
    duration = fields.part("benchmark_duration")
    unit = duration.text("unit").lower() or "sec"
    duration_s = duration.time_s("avg", UNITS_S.get(unit, 1.0))
    config = fields.part("input_config")
    pace = _first(config, "loadgen", "perf_analyzer", "load_generator")
    stimulus = pace.part("stimulus") if isinstance(pace.raw("stimulus"), dict) else Fields({}, "", fields.faults)
    clients = pace.whole("concurrency", least=1) or stimulus.whole("concurrency", least=1)
    rate = pace.amount("request_rate", most=1e6) or stimulus.amount("request_rate", most=1e6)
    endpoint = config.part("endpoint")
    names = endpoint.raw("model_names") or config.raw("model_names") or config.part("models").raw("items")
    first = names[0] if isinstance(names, list) and names else names
    if isinstance(first, dict):
        first = first.get("name")
    run.state("model", first if isinstance(first, str) else "", "input_config.model_names")
    run.state("engine", engine_of(endpoint.text("backend")), endpoint.named("backend"))
    return (
        StatedLoad(
            num_requests=None if completed is None else completed + (failed or 0),
            num_clients=clients,
            requests_per_s=rate or None,
            input_tokens=fields.part("input_sequence_length").amount("avg") or None,
            output_tokens=fields.part("output_sequence_length").amount("avg") or None,
            inputs_tokens=lengths_by_percentiles(fields.part("input_sequence_length")),
            outputs_tokens=lengths_by_percentiles(fields.part("output_sequence_length")),
        ),
        completed,
        failed,
        duration_s,
    )


def _first(config: Fields, *keys: str) -> Fields:
    found = next((key for key in keys if isinstance(config.raw(key), dict)), keys[0])
    return config.part(found)

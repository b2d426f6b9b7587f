"""The JSON of ``vllm bench latency`` and ``vllm bench throughput``: batches that the engine is given as a whole.

Source: vLLM benchmarks/latency.py and throughput.py. Neither states model or lengths by itself; scripts add them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import Gathering
from infcalc.evidence.nouns import MEAN, MEDIAN, BenchmarkRun, Format, Quantity, StatedLoad
from infcalc.evidence.serving_keys import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_INPUT = ("input_len", "input", "input_tokens", "random_input_len")
_OUTPUT = ("output_len", "output", "ouput", "output_tokens", "random_output_len")
"""As the options are called, and as published files have it, with the slip."""
_BATCH = ("batch_size", "batch")
_MODEL = ("model", "model_id")


def is_vllm_latency(record: dict[str, Any]) -> bool:
    """Return whether an object is a result of the latency benchmark."""
    return "avg_latency" in record and "percentiles" in record


def is_vllm_throughput(record: dict[str, Any]) -> bool:
    """Return whether an object is a result of the throughput benchmark."""
    return "elapsed_time" in record and "tokens_per_second" in record


def read_vllm_latency(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one object: the time of a whole batch, over repetitions.

    Raises:
        FileProblem: values that are none, all of them.

    """
    fields = Fields(record)
    run = Gathering(Format.VLLM_LATENCY, place)
    _settings(run, fields)
    run.add(Quantity.E2E, MEAN, fields.time_s("avg_latency", 1.0), "avg_latency")
    points = fields.part("percentiles")
    for key in points.names():
        name = MEDIAN if key == "50" else f"p{key}"
        run.add(Quantity.E2E, name, points.time_s(key, 1.0), points.named(key))
    load = StatedLoad(
        batch=_first_whole(fields, _BATCH),
        input_tokens=_first_whole(fields, _INPUT),
        output_tokens=_first_whole(fields, _OUTPUT),
    )
    refuse(fields.faults, place)
    run.missing += _unsaid(load.batch, "batch size") + _lengths_unsaid(load)
    run.convert("times are of a whole batch, from its start to its last token")
    return run.run(load, fields, needed=(Quantity.E2E,))


def read_vllm_throughput(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one object; its tokens per second are of prompts and answers together.

    Raises:
        FileProblem: values that are none, all of them.

    """
    fields = Fields(record)
    run = Gathering(Format.VLLM_THROUGHPUT, place)
    _settings(run, fields)
    duration_s = fields.time_s("elapsed_time", 1.0)
    requests, tokens = fields.whole("num_requests", least=1), fields.amount("total_num_tokens")
    run.add(Quantity.REQUESTS_PER_S, MEAN, fields.per_s("requests_per_second"), "requests_per_second")
    run.add(Quantity.TOTAL_PER_S, MEAN, fields.per_s("tokens_per_second"), "tokens_per_second")
    inputs, outputs = _first_whole(fields, _INPUT), _first_whole(fields, _OUTPUT)
    refuse(fields.faults, place)
    if requests is not None and tokens and inputs is not None and outputs is not None:
        if requests * (inputs + outputs) != tokens:
            run.warnings.append(
                f"total_num_tokens {tokens:,.0f} is not {requests:,} requests of {inputs:,} + {outputs:,} tokens: "
                "answers ended early, or one is wrong"
            )
        elif duration_s:
            rate = requests * outputs / duration_s
            run.add(Quantity.OUTPUT_PER_S, MEAN, rate, "elapsed_time", "num_requests x output length / elapsed_time")
    load = StatedLoad(num_requests=requests, unlimited=True, input_tokens=inputs, output_tokens=outputs)
    run.missing += _lengths_unsaid(load)
    run.convert("tokens_per_second counts prompts and answers together: it is total_tokens_per_s here")
    return run.run(load, fields, num_completed=requests, duration_s=duration_s, needed=(Quantity.TOTAL_PER_S,))


def _settings(run: Gathering, fields: Fields) -> None:
    for key in _MODEL:
        run.state("model", fields.text(key), key)
    settings_of(run, fields)
    run.state("engine", "vllm", "the format")


def _first_whole(fields: Fields, keys: Iterable[str]) -> int | None:
    return next((value for key in keys if (value := fields.whole(key, least=1)) is not None), None)


def _lengths_unsaid(load: StatedLoad) -> list[str]:
    return _unsaid(load.input_tokens, "input length") + _unsaid(load.output_tokens, "output length")


def _unsaid(value: float | None, name: str) -> list[str]:
    return [name] if value is None else []

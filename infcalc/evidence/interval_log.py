"""What engines print of their work while they serve: lines of an interval, a prefill, a decode, or one step.

Source: vLLM v1/metrics/loggers.py (0.6 to 0.33) and SGLang managers/scheduler_metrics_mixin.py (0.4 to 0.5).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from infcalc.errors import FileProblem
from infcalc.evidence.lines import whole_lines
from infcalc.evidence.nouns import IntervalLine, IntervalLog, Phase

_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_VLLM: Final = re.compile(
    rf"(?:Engine (?P<rank>[0-9]+): )?Avg prompt throughput: (?P<input>{_NUMBER}) tokens/s, "
    rf"Avg generation throughput: (?P<output>{_NUMBER}) tokens/s, "
    r"Running: (?P<running>[0-9]+) reqs?, (?P<rest>.*)"
)
_VLLM_REST: Final = {
    "waiting": re.compile(r"(?:Waiting|Pending): ([0-9]+) reqs"),
    "usage": re.compile(rf"GPU KV cache usage: ({_NUMBER})%"),
    "hits": re.compile(rf"(?<!External )(?<!MM )Prefix cache hit rate: (?:GPU: )?({_NUMBER})%"),
    "preemptions": re.compile(r"Preemptions: ([0-9]+)"),
}
_SPEC: Final = re.compile(
    rf"SpecDecoding metrics: Mean acceptance length: (?P<length>{_NUMBER}), .*?"
    rf"Avg Draft acceptance rate: (?P<rate>{_NUMBER})%"
)
_STEP: Final = re.compile(
    r"Iteration\((?P<number>[0-9]+)\): (?P<prefills>[0-9]+) context requests, (?P<context>[0-9]+) context tokens, "
    rf"(?P<decodes>[0-9]+) generation requests, [0-9]+ generation tokens, iteration elapsed time: (?P<ms>{_NUMBER}) ms"
)
_PREFILL: Final = re.compile(r"(?P<rank>(?:(?:TP|DP|PP|EP)[0-9]+ ?)*)\]?\s*Prefill batch[^,]*, (?P<rest>#new-seq: .*)")
_DECODE: Final = re.compile(
    r"(?P<rank>(?:(?:TP|DP|PP|EP)[0-9]+ ?)*)\]?\s*Decode batch[^,]*, (?P<rest>#running-req: .*)"
)
_RETRACT: Final = re.compile(r"Retract requests\. #retracted_reqs: [0-9]+|Preempted |is preempted by")
_PAIR: Final = re.compile(r"(?P<key>[#A-Za-z][^:,]*?): (?P<value>True|False|-?[0-9.]+)(?=,|$)")
_LAST: Final = ("%", "ms")
_MOST: Final = 2.0**45


def is_interval_log(text: str) -> bool:
    """Return whether a text holds such lines."""
    signs = ("Avg prompt throughput: ", "Decode batch", "Prefill batch", "iteration elapsed time: ")
    return any(sign in text for sign in signs) and any(_line(line, 0) is not None for line in text.splitlines())


def read_interval_log(text: str, place: str) -> IntervalLog:
    """Return the lines of a log that tell of an engine's work.

    Raises:
        FileProblem: there is none, or they are of two engines.

    """
    lines, cut = whole_lines(text, ends=_LAST)
    found: list[IntervalLine] = []
    retractions: list[int] = []
    doubts = [cut] if cut else []
    for number, line in enumerate(lines, start=1):
        if _RETRACT.search(line):
            retractions.append(number)
        spec = _SPEC.search(line)
        if spec and found and found[-1].tokens_per_round is None:
            length, rate = float(spec["length"]), float(spec["rate"])
            if length >= 1 and rate <= 100:  # noqa: PLR2004 - per cent
                found[-1] = replace(found[-1], tokens_per_round=length, draft_acceptance_fraction=rate / 100)
            continue
        one = _line(line, number)
        if one is not None:
            found.append(one)
        elif "Avg prompt throughput:" in line or "Decode batch" in line or "Prefill batch" in line:
            doubts.append(f"line {number} is not as the engine writes it: left out")
    engines = sorted({one.engine for one in found})
    if not found:
        raise FileProblem(
            "no line tells of an engine's work",
            place=place,
            hint="lines looked for: Avg prompt throughput: ..., Prefill batch, ..., Decode batch, ...",
        )
    if len(engines) > 1:
        raise FileProblem(f"lines of {' and '.join(engines)}", place=place, hint="give the log of each by itself")
    conversions = ["prompt tokens per second are those computed: what the prefix cache held is not among them"]
    return IntervalLog(
        place=place,
        engine=engines[0],
        lines=tuple(found),
        retractions=tuple(retractions),
        missing=tuple(_missing(found)),
        conversions=tuple(conversions if any(one.input_tokens_per_s is not None for one in found) else ()),
        warnings=tuple(doubts),
    )


def _missing(lines: list[IntervalLine]) -> list[str]:
    wanted = ("output_tokens_per_s", "num_running", "num_waiting", "kv_usage_fraction")
    return [name for name in wanted if all(getattr(line, name) is None for line in lines)]


def _line(text: str, number: int) -> IntervalLine | None:
    match = _VLLM.search(text)
    if match is not None:
        return _vllm(match, number)
    match = _STEP.search(text)
    if match is not None:
        return IntervalLine(
            line=number,
            engine="vllm",
            phase=Phase.STEP,
            num_prefills=int(match["prefills"]),
            new_tokens=int(match["context"]),
            num_running=int(match["decodes"]) + int(match["prefills"]),
            step_s=float(match["ms"]) / 1000,
        )
    for pattern, phase in ((_DECODE, Phase.DECODE), (_PREFILL, Phase.PREFILL)):
        match = pattern.search(text)
        if match is not None:
            return _sglang(match, phase, number)
    return None


def _vllm(match: re.Match[str], number: int) -> IntervalLine | None:
    rest = match["rest"]
    told = {name: pattern.search(rest) for name, pattern in _VLLM_REST.items()}
    waiting, usage, hits, preemptions = (told[name] for name in ("waiting", "usage", "hits", "preemptions"))
    if waiting is None or usage is None or float(usage[1]) > 100:  # noqa: PLR2004 - per cent
        return None
    hit = None if hits is None or float(hits[1]) > 100 else float(hits[1]) / 100  # noqa: PLR2004 - per cent
    return IntervalLine(
        line=number,
        engine="vllm",
        phase=Phase.ALL,
        input_tokens_per_s=float(match["input"]),
        output_tokens_per_s=float(match["output"]),
        num_running=int(match["running"]),
        num_waiting=int(waiting[1]),
        kv_usage_fraction=float(usage[1]) / 100,
        prefix_hit_fraction=hit,
        num_preemptions=None if preemptions is None else int(preemptions[1]),
        rank=match["rank"] or "",
    )


def _sglang(match: re.Match[str], phase: Phase, number: int) -> IntervalLine | None:
    pairs = {pair["key"].strip(): pair["value"] for pair in _PAIR.finditer(match["rest"].rstrip())}

    def real(*keys: str) -> float | None:
        for key in keys:
            value = pairs.get(key)
            if value is None or value in {"True", "False"}:
                continue
            try:
                number = float(value)
            except ValueError:
                return None
            return number if 0 <= number <= _MOST else None
        return None

    def whole(*keys: str) -> int | None:
        value = real(*keys)
        return None if value is None or value != int(value) else int(value)

    usage = real("token usage", "full token usage")
    needed = real("gen throughput (token/s)") if phase is Phase.DECODE else whole("#new-token")
    if needed is None or (usage is not None and usage > 1) or whole("#running-req") is None:
        return None
    accepted = real("accept len")
    graph = pairs.get("cuda graph", pairs.get("cpu graph"))
    return IntervalLine(
        line=number,
        engine="sglang",
        phase=phase,
        input_tokens_per_s=real("input throughput (token/s)") if phase is Phase.PREFILL else None,
        output_tokens_per_s=real("gen throughput (token/s)") if phase is Phase.DECODE else None,
        num_running=whole("#running-req"),
        num_waiting=whole("#queue-req"),
        kv_usage_fraction=usage,
        held_tokens=whole("#token", "#full token"),
        new_tokens=whole("#new-token"),
        cached_tokens=whole("#cached-token"),
        num_prefills=whole("#new-seq"),
        tokens_per_round=accepted if accepted is not None and accepted >= 1 else None,
        draft_acceptance_fraction=real("accept rate"),
        graph=None if graph is None else graph == "True",
        rank=(match["rank"] or "").strip(),
    )

"""Numbers that users asked about in public on serving over time and on routing, each with its source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import SimulationResult
from infcalc.api.workload_ask import WorkloadAsk
from tests.journeys.command import infcalc
from tests.journeys.published import assert_holds, assert_unchanged, cases_of, checks_of

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases_simulation.yaml"
OTHERS = tuple(
    PUBLISHED.with_name(name) for name in ("user_cases.yaml", "user_cases_memory.yaml", "user_cases_speed.yaml")
)
FEATURES = {"sim", "prefix"}


def _what_is_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float | bool]:
    trace = place / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,9000,10\n0,8000,500\n1,100,10\n", encoding="utf-8")
    ran = infcalc(capsys, "simulate", str(trace), "-m", "llama3-8b", "-g", "h100", "-n", "1", "--json")
    document = json.loads(ran.out)
    inputs, result = document["inputs"], document["result"]
    stated = bool(inputs["engine"]["value"] and inputs["engine_version"]["value"] and inputs["policy"]["value"])
    warned = " ".join(document["warnings"])
    return {
        "states_engine_and_version": stated,
        "rejects_or_truncates_over_max_len": result["rejected"] == 1 and "1 answers end" in warned,
    }


def _one_prefix_for_all(place: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float | bool]:
    del place, capsys

    def routed(router: str) -> SimulationResult:
        sent = WorkloadAsk(
            requests_per_s=3.0, num_requests=400, input_tokens="7252", output_tokens="150", shared_prefix="tokens=2548"
        )
        ask = Ask(models=("kimi-k2.5",), gpus=("h200",), num_gpus=8)
        return simulate(ask, SimulationAsk(load=sent, num_replicas=2, router=router)).result

    aware, turns = routed("prefix-aware"), routed("round-robin")
    assert aware.ttft_s is not None
    assert turns.ttft_s is not None
    # Equal hits: affinity buys nothing.
    assert aware.prefix_hit_rate_fraction == pytest.approx(turns.prefix_hit_rate_fraction, rel=0.01)
    assert aware.ttft_s.mean > 1.2 * turns.ttft_s.mean
    return {"ttft_ratio_cacheaware_over_rr": aware.ttft_s.mean / turns.ttft_s.mean, "prefix_share": 2548 / 9800}


ANSWERS: dict[str, Callable[[Path, pytest.CaptureFixture[str]], dict[str, float | bool]]] = {
    "UC-052": _what_is_compared,
    "UC-122": _one_prefix_for_all,
}


@pytest.mark.parametrize(("case", "check"), checks_of(PUBLISHED))
def test_a_published_number_comes_out(
    case: str, check: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_holds(check, ANSWERS[case](tmp_path, capsys)[check["key"]])


def test_every_case_is_answered_and_no_number_was_changed() -> None:
    assert {case["id"] for case in cases_of(PUBLISHED)} == set(ANSWERS)
    assert_unchanged(PUBLISHED, FEATURES, OTHERS)

from __future__ import annotations

from pathlib import Path

from infcalc.api.validating import validate_memory
from infcalc.report.text import as_csv, plain
from infcalc.report.views.validate import view

LOGS = Path(__file__).resolve().parents[1] / "published" / "memory_logs.yaml"


def test_skipped_cases_are_dashes_and_assumed_inputs_are_shown() -> None:
    answer = validate_memory(str(LOGS))
    text = plain(view(answer))
    assert "None" not in text
    assert "not stated, so assumed" in text
    assert "max_num_seqs, max_num_batched_tokens" in text
    assert "assumed" in as_csv(view(answer)).splitlines()[0].split(",")

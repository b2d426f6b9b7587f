from __future__ import annotations

import pytest

from infcalc.engines.reported import read_version_text


@pytest.mark.parametrize(
    ("text", "date", "version"),
    [
        ("0.19.0", None, "0.19.0"),
        ("0.7.x (V0)", None, "0.7+v0"),
        ("0.6.4-ish (V0)", None, "0.6.4+v0"),
        ("0.9.x (V1)", None, "0.9"),
        ("~0.27", None, "0.27"),
        ("0.20/0.21 dev", None, "0.20"),
        ("0.27.1 + NVFP4-KV patch", None, "0.27.1"),
        ("0.13.0 (nvcr vllm:26.01)", None, "0.13.0"),
        ("0.1.dev19754+g3a0914114", "2026-08-20", "0.26"),
        ("0.1.dev1+g4d2a68d64 (2026-08-16)", None, "0.26"),
        ("image vllm-openai:some-model", "2026-09-16", "0.28"),
        ("V0 engine (unsloth)", "2025-08", "0.8+v0"),
        (None, "2023-05-01", "0.1"),
        (None, None, None),
    ],
)
def test_versions_as_people_write_them(text: str | None, date: str | None, version: str | None) -> None:
    assert read_version_text("vllm", text, date).version == version


def test_what_was_not_stated_is_said() -> None:
    assert read_version_text("vllm", "0.19.0").assumptions == ()
    assert "0.26" in read_version_text("vllm", None, "2026-08-06").assumptions[0]
    assert read_version_text("sglang", None, "2025-07-22").version == "0.4.9"
    assert read_version_text("llama.cpp", "a fork", "2025-04").version is None
    image = read_version_text("tensorrt-llm", "gpt-oss-dev")
    assert image.version == "1.0"
    assert "gpt-oss-dev" in image.assumptions[0]

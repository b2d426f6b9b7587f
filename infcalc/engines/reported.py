"""Engine versions as people write them (``0.7.x (V0)``, ``~0.27``, a development build with a date), to known ones."""

from __future__ import annotations

import re

from infcalc.errors import UnknownName
from infcalc.frozen import frozen

_NUMBERS = re.compile(r"(?<![0-9.])v?([0-9]{1,2}(?:\.[0-9]{1,3}){1,2})")
_V0 = re.compile(r"\bv0\b", re.IGNORECASE)
_V2 = re.compile(r"\bv2\b|runner\s*v2", re.IGNORECASE)
_DEVELOPMENT = re.compile(r"^v?0\.1\.dev|^0\.0\b")
_DATE = re.compile(r"(20[0-9]{2})(?:-([0-9]{2}))?")

# First month in which a version was the newest release; between releases, logs are mostly of the last one.
_VLLM_BY_MONTH = (
    ("2023-06", "0.1"),
    ("2023-10", "0.2"),
    ("2024-02", "0.3"),
    ("2024-04", "0.4"),
    ("2024-06", "0.5"),
    ("2024-09", "0.6"),
    ("2025-02", "0.7"),
    ("2025-04", "0.8"),
    ("2025-06", "0.9"),
    ("2025-08", "0.10"),
    ("2025-10", "0.11"),
    ("2025-12", "0.12"),
    ("2026-01", "0.13"),
    ("2026-02", "0.15"),
    ("2026-03", "0.17"),
    ("2026-04", "0.19"),
    ("2026-05", "0.20"),
    ("2026-06", "0.22"),
    ("2026-07", "0.24"),
    ("2026-08", "0.26"),
    ("2026-09", "0.28"),
    ("2026-10", "0.30"),
    ("2026-11", "0.33"),
)
_SGLANG_BY_MONTH = (
    ("2024-01", "0.1"),
    ("2024-08", "0.3"),
    ("2024-12", "0.4.0"),
    ("2025-03", "0.4.4"),
    ("2025-07", "0.4.9"),
    ("2025-09", "0.5.2"),
    ("2025-12", "0.5.6"),
    ("2026-07", "0.5.18"),
    ("2026-10", "0.5.23"),
)
_IMAGES = {"gpt-oss-dev": "1.0"}
"""Container images that bear a name instead of a version: TensorRT-LLM for gpt-oss came out on 2025-08-05, between the
release candidates of 1.0 (OpenAI cookbook, "Using NVIDIA TensorRT-LLM to run gpt-oss-20b")."""
_V0_ALONE = "0.8"
"""Where only the engine generation is named: V0 was what most logs of 2025 still ran, up to 0.10."""


@frozen
class ReadVersion:
    """A version that the rules know, and what was assumed to get there."""

    version: str | None
    assumptions: tuple[str, ...] = ()


def read_version_text(engine: str, text: str | None, date: str | None = None) -> ReadVersion:
    """Return the version that ``text`` means; a build without one is dated by ``date`` (``2026-08-16``).

    >>> read_version_text("vllm", "0.9.x (V0)").version, read_version_text("vllm", "0.1.dev19754", "2026-08-20").version
    ('0.9+v0', '0.26')
    """
    said = (text or "").strip()
    mark = "+v0" if _V0.search(said) else "+v2" if _V2.search(said) else ""
    found = None if _DEVELOPMENT.search(said) else _NUMBERS.search(said)
    if found is not None:
        return ReadVersion(version=found[1] + (mark if engine == "vllm" else ""))
    if mark == "+v0" and engine == "vllm":
        return ReadVersion(
            version=_V0_ALONE + mark, assumptions=(f"only engine V0 is named: the rules of {_V0_ALONE} taken",)
        )
    if engine == "tensorrt-llm" and said in _IMAGES:
        version = _IMAGES[said]
        return ReadVersion(version=version, assumptions=(f"image {said!r}: the rules of {version} taken",))
    months = _VLLM_BY_MONTH if engine == "vllm" else _SGLANG_BY_MONTH if engine == "sglang" else ()
    dated = _DATE.search(said) or _DATE.search(date or "")
    if dated is None or not months:
        return ReadVersion(version=None, assumptions=(f"version {said!r}: the rules of the newest known taken",))
    month = f"{dated[1]}-{dated[2] or '12'}"
    version = next((number for start, number in reversed(months) if start <= month), months[0][1])
    return ReadVersion(
        version=version + mark, assumptions=(f"version {said!r} dated {month}: the rules of {version} taken",)
    )


_ENGINES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), ledger, paced)
    for pattern, ledger, paced in (
        (r"awq", "vllm", "autoawq"),
        (r"tensorrt|trt", "tensorrt-llm", "tensorrt-llm"),
        (r"sglang", "sglang", "sglang"),
        (r"llama\.?cpp|ollama", "llama.cpp", "llama.cpp"),
        (r"gpt-?fast", "vllm", "gpt-fast"),
        (r"lmdeploy|turbomind", "vllm", "lmdeploy"),
        (r"\btgi\b|text-generation-inference", "vllm", "tgi"),
        (r"vllm", "vllm", "vllm"),
        (r"\bhf\b|hugging|transformers", "vllm", "hf"),
    )
)


def read_engine_text(text: str) -> tuple[str, str]:
    """Return the engine whose memory rules hold for what people call an engine, and the one whose pace it has.

    Engines without a ledger of their own are lent that of vLLM.

    >>> read_engine_text("TensorRT-LLM (PyTorch)"), read_engine_text("LMDeploy (TurboMind)")
    (('tensorrt-llm', 'tensorrt-llm'), ('vllm', 'lmdeploy'))

    Raises:
        UnknownName: none that is known.

    """
    for pattern, ledger, paced in _ENGINES:
        if pattern.search(text):
            return ledger, paced
    raise UnknownName("engine", text or "(none)", ("vllm", "sglang", "tensorrt-llm", "llama.cpp"))

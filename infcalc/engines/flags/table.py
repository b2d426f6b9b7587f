"""All options of all engines, by name and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.flags import llamacpp, sglang, tensorrt_llm, vllm
from infcalc.engines.flags.flag import dotted
from infcalc.engines.rules import parse_version

if TYPE_CHECKING:
    from infcalc.engines.flags.flag import Flag

FLAGS: dict[str, dict[str, Flag]] = {
    engine: {flag.name: flag for flag in flags}
    for engine, flags in (
        ("vllm", vllm.FLAGS),
        ("sglang", sglang.FLAGS),
        ("tensorrt-llm", tensorrt_llm.FLAGS),
        ("llama.cpp", llamacpp.FLAGS),
    )
}
"""Engine -> name -> option."""


def version_of(engine: str, version: str) -> tuple[int, ...]:
    """Return a version as it is compared; builds of llama.cpp, which have no order, are all the newest."""
    return (10**9,) if engine == "llama.cpp" else parse_version(version)


def has_flag(engine: str, name: str, version: tuple[int, ...]) -> bool:
    """Return whether an engine has an option of that name in a version.

    >>> has_flag("sglang", "--attn-dp-size", (0, 5, 21)), has_flag("sglang", "--attn-dp-size", (0, 5, 23))
    (False, True)
    """
    flag = FLAGS[engine].get(name)
    return flag is not None and flag.known_at(version)


def first_known(engine: str, names: tuple[str, ...], version: tuple[int, ...]) -> str:
    """Return the first of several spellings that a version has; the last where it has none.

    >>> first_known("tensorrt-llm", ("--config", "--extra_llm_api_options"), (1, 1))
    '--extra_llm_api_options'
    """
    return next((name for name in names if has_flag(engine, name, version)), names[-1])


def why_absent(engine: str, name: str, version: tuple[int, ...]) -> str:
    """Return in words why a version does not have an option; empty where it has.

    >>> why_absent("vllm", "--data-parallel-size", (0, 8))
    'it came with 0.8.3'
    """
    flag = FLAGS[engine][name]
    if flag.known_at(version):
        return ""
    return f"it came with {dotted(flag.since)}" if version < flag.since else f"it went with {dotted(flag.until)}"

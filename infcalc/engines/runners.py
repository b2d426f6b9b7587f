"""Which engine core or model runner of vLLM a release has: a version may name another with a mark (``0.28+v2``)."""

from __future__ import annotations

from infcalc.engines.rules import parse_version

_V1_SINCE = (0, 8)
_V0_UNTIL = (0, 11)
_V2_SINCE = (0, 28)
"""The first of which start-up logs of model runner V2 were read."""


def runner_doubts(engine: str, version: str) -> tuple[str, ...]:
    """Return a warning where a version names a core or runner that the rules do not know of that release.

    >>> runner_doubts("vllm", "0.28+v2"), len(runner_doubts("vllm", "0.19.1+v2"))
    ((), 1)
    """
    number, _, mark = version.lower().partition("+")
    if engine != "vllm" or mark not in {"v0", "v1", "v2"}:
        return ()
    at = parse_version(number)
    if mark == "v2" and at < _V2_SINCE:
        return (f"{engine} {version}: figures of model runner V2 are known from 0.28 on, and those were taken",)
    if mark == "v1" and at < _V1_SINCE:
        return (f"{engine} {version}: engine V1 came with 0.8; its rules were taken all the same",)
    if mark == "v0" and at >= _V0_UNTIL:
        return (f"{engine} {version}: engine V0 went with 0.11; its rules were taken all the same",)
    return ()

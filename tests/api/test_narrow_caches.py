"""One truth: what an engine makes of a narrow cache is what the clock prices, on every GPU of the catalog."""

from __future__ import annotations

import itertools

import pytest

from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.servers import clock_of
from infcalc.engines.pace import pace
from infcalc.engines.precisions import Status
from infcalc.engines.verdicts import kv_verdict
from infcalc.spec.kv import KV_FORMATS

CATALOG = load(Ask())
SERVERS = (("vllm", "0.33"), ("sglang", "0.5.23"), ("tensorrt-llm", "1.2"))
CARDS = ("a100-80gb", "a10g", "l4", "h100", "b200", "mi300x")


def decode_s(engine: str, version: str, card: str, kv: str) -> float:
    ask = Ask(models=("qwen3-8b",), gpus=(card,), engine=engine, engine_version=version)
    (deployment,) = resolve(ask, CATALOG)
    clock = clock_of(deployment, KV_FORMATS[kv], pace(engine, version).value, CATALOG.efficiency(deployment.gpu))
    return float(clock.step_s(num_decodes=64, context_tokens=8000))


@pytest.mark.parametrize(("server", "card"), list(itertools.product(SERVERS, CARDS)))
def test_a_cache_that_saves_memory_only_makes_no_step_shorter(server: tuple[str, str], card: str) -> None:
    wide_s = decode_s(*server, card, "bf16")
    for kv in ("fp8", "int8", "int4", "nvfp4"):
        match kv_verdict(*server, CATALOG.gpu(card).gpu, kv).status:
            case Status.MEMORY_ONLY:
                assert decode_s(*server, card, kv) == wide_s
            case Status.SUPPORTED:
                assert decode_s(*server, card, kv) < wide_s
            case _:
                assert decode_s(*server, card, kv) <= wide_s

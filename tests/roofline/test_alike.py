from __future__ import annotations

import numpy as np
import pytest

from infcalc.api.deployment import Ask, resolve
from infcalc.api.servers import clock_of
from infcalc.engines.pace import pace
from infcalc.files import load_catalog
from infcalc.spec.kv import KV_FORMATS

CATALOG = load_catalog()
STEPS = [
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 5.0, 0.0, 0.0),
    (64.0, 4096.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 777.0),
    (33.5, 900.25, 2.5, 512.0),
]


@pytest.mark.parametrize(
    ("model", "gpu", "parallel"),
    [
        ("llama3-70b", "a100-sxm4-80gb", {"tp": 4}),
        ("llama3.1-8b", "mi300x", {"tp": 1}),
        ("deepseek-v3", "h200-sxm-141gb", {"tp": 8}),
        ("qwen3-next-80b-a3b", "h100-sxm5-80gb", {"tp": 2, "pp": 2}),
        ("gpt-oss-20b", "rtx-4090", {"tp": 1}),
    ],
)
def test_a_lone_step_takes_as_long_as_among_many(model: str, gpu: str, parallel: dict[str, int]) -> None:
    (deployment,) = resolve(Ask(models=(model,), gpus=(gpu,), **parallel), CATALOG)  # type: ignore[arg-type]
    clock = clock_of(deployment, KV_FORMATS["bf16"], pace("vllm", None).value, CATALOG.efficiency(deployment.gpu))
    names = ("num_decodes", "context_tokens", "num_prefills", "new_tokens")
    many = clock.step_s(**dict(zip(names, np.array(STEPS).T, strict=True)))
    for step, among in zip(STEPS, many, strict=True):
        lone = clock.step_s(**dict(zip(names, step, strict=True)))
        assert lone == pytest.approx(float(among), rel=1e-9, abs=0)
        assert lone == clock.step_s(**dict(zip(names, step, strict=True)))

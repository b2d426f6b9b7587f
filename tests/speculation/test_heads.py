from __future__ import annotations

import pytest

from infcalc import files
from infcalc.speculation.heads import eagle3_head, eagle_head, medusa_parameters, proposing_parameters

CATALOG = files.load_catalog(())
HEADS = [CATALOG.draft(name) for name in CATALOG.draft_names()]
OF_DENSE = [head for head in HEADS if not CATALOG.model(head.targets[0]).model.has_experts]


@pytest.mark.parametrize("head", OF_DENSE, ids=lambda head: head.name)
def test_the_typical_head_of_a_dense_model_is_the_published_one_to_the_parameter(head) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    model = CATALOG.model(head.targets[0]).model
    typical = eagle3_head(model) if head.kind == "eagle3" else eagle_head(model)
    assert typical.core_parameters == pytest.approx(head.core_parameters, rel=0.0005)
    assert typical.lm_head_parameters == head.lm_head_parameters
    assert typical.kv_bytes_per_token_bf16 == head.kv_bytes_per_token_bf16


def test_published_heads_of_mixtures_lie_about_the_typical_one() -> None:
    ratios = []
    for head in HEADS:
        model = CATALOG.model(head.targets[0]).model
        if model.has_experts and head.kind == "eagle3":
            ratios.append(head.core_parameters / eagle3_head(model).core_parameters)
    assert len(ratios) >= 9
    assert min(ratios) > 0.65
    assert max(ratios) < 1.35
    assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1, abs=0.01)


def test_a_head_without_a_vocabulary_of_its_own_proposes_with_the_targets() -> None:
    model = CATALOG.model("llama3-8b").model
    assert proposing_parameters(eagle_head(model), model) == eagle_head(model).core_parameters + 128_256 * 4096
    own = eagle3_head(model)
    assert proposing_parameters(own, model) == own.core_parameters + 32_000 * 4096


def test_medusa_heads_hold_a_layer_and_a_vocabulary_each() -> None:
    # Vicuna 7B: 5 heads of 4096 x 4096 and 4096 x 32000.
    assert medusa_parameters(CATALOG.model("llama1-7b").model) == 5 * (4096**2 + 4096 * 32_000)

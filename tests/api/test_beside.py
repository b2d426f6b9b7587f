"""A draft beside the model: in the ledger, in the pages, and in what `speculate` says of a full server."""

from __future__ import annotations

from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.api.filling import MemoryResult, memory
from infcalc.api.fitting import concurrency
from infcalc.errors import UnknownName, UsageError

LLAMA = ("llama3.1-70b",)
HEAD = "llama3-70b-eagle3"


def filled(**asked: Any) -> MemoryResult:  # noqa: ANN401 - fields of Ask
    return memory(Ask(models=LLAMA, **asked), contexts=(4096,)).result


def test_weights_of_a_head_are_a_quarter_on_each_of_four_ranks() -> None:
    plain, drafted = filled(), filled(draft_model=HEAD)
    # 17.0 h^2 and 32,000 h in 16 bit over TP 4; the catalog states 1,403,011,072 parameters.
    own = drafted.weights_bytes - plain.weights_bytes
    assert own == pytest.approx(2 * (17.0 * 8192**2 + 32_000 * 8192) / 4, rel=0.001)
    assert plain.kv_pool_bytes - drafted.kv_pool_bytes == own


def test_its_layer_takes_a_part_of_every_block() -> None:
    plain, drafted = filled(), filled(draft_model=HEAD)
    # 81 layers of 8 KV heads of 128 on four ranks, 16 tokens: 81 x 2 x 2 x 128 x 2 x 16 bytes.
    assert plain.kv_blocks == plain.kv_pool_bytes // (80 * 16_384)
    assert drafted.kv_blocks == drafted.kv_pool_bytes // (81 * 16_384)


def test_a_draft_model_of_sixteen_layers_takes_theirs() -> None:
    drafted = filled(draft_model="llama3.2-1b", num_lookahead_tokens=5)
    # 16 layers of 8 KV heads of 64: half as wide as the target's.
    assert drafted.kv_blocks == drafted.kv_pool_bytes // (80 * 16_384 + 16 * 8_192)


def test_drafts_have_slots_after_a_sequence_that_fills_its_blocks() -> None:
    # 4,096 tokens are 256 blocks; a token more is one block more, which 5 drafts need and a shorter context has left.
    asked: dict[str, Any] = {"draft_model": HEAD, "num_lookahead_tokens": 5}
    drafted = filled(**asked)
    assert drafted.sequences == (drafted.kv_blocks - 1) // 257
    fewer = memory(Ask(models=LLAMA, **asked), contexts=(4091,)).result
    assert fewer.sequences == (drafted.kv_blocks - 1) // 256


def test_every_command_counts_the_same_sequences() -> None:
    ask = Ask(models=LLAMA, draft_model=HEAD, num_lookahead_tokens=3)
    assert concurrency(ask, contexts=(4096,)).result.rows[0].sequences == memory(ask, contexts=(4096,)).result.sequences


@pytest.mark.parametrize(
    ("draft", "asked"),
    [
        (HEAD, {"models": LLAMA}),
        ("llama3.2-1b", {"models": LLAMA}),
        (HEAD, {"models": LLAMA, "tp": 2, "pp": 2}),
        # 14 heads: the draft runs at TP 2.
        ("qwen2.5-0.5b", {"models": ("qwen2.5-72b",), "tp": 8}),
        ("gemma-3-1b", {"models": ("gemma-3-27b",), "num_gpus": 4}),
    ],
)
def test_what_speculate_says_of_a_full_server_is_what_the_ledger_says(draft: str, asked: dict[str, Any]) -> None:
    drafted = memory(Ask(**asked, draft_model=draft, num_lookahead_tokens=3), contexts=(4096,)).result
    (load,) = speculate(
        Ask(**asked), DraftAsk(draft_model=draft, num_draft_tokens=3), contexts=(4096,)
    ).result.full_load
    assert load.sequences_without == memory(Ask(**asked), contexts=(4096,)).result.sequences
    assert load.sequences_with == drafted.sequences < load.sequences_without


def test_a_head_for_another_model_is_doubtful_in_every_command() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8, draft_model=HEAD)
    assert any("was made for" in text for text in memory(ask).warnings)
    assert not any("was made for" in text for text in memory(Ask(models=LLAMA, draft_model=HEAD)).warnings)


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        ({"draft_model": "qwen3-0.6b"}, UsageError, "has a vocabulary of 151,936"),
        ({"num_lookahead_tokens": 3}, UsageError, "3 draft tokens of no draft"),
        ({"draft_model": HEAD, "num_lookahead_tokens": 0}, UsageError, "num-draft-tokens"),
        ({"draft_model": "nobody"}, UnknownName, "nobody"),
    ],
)
def test_what_cannot_draft_is_refused(asked: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as refused:
        filled(**asked)
    assert getattr(refused.value, "hint", "")


def test_a_head_for_a_model_with_pipeline_stages_lies_on_the_last() -> None:
    ask = Ask(models=LLAMA, tp=2, pp=2, draft_model=HEAD)
    drafted, plain = memory(ask).result, memory(Ask(models=LLAMA, tp=2, pp=2)).result
    # The governing stage changes or not: none has more room than without.
    assert drafted.sequences <= plain.sequences

from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.api.comparing import compare_text
from infcalc.api.deployment import Ask
from infcalc.api.filling import memory
from infcalc.units import GIB
from tests.api.logged import H100, H200
from tests.engines.logs import samples


def remedies(text: str, ask: Ask) -> tuple[str, ...]:
    (refusal,) = compare_text(text, ask).result.refusals
    return refusal.remedies


def test_an_engine_that_died_of_mebibytes_is_said_to_have_died() -> None:
    answer = compare_text(samples.OUT_OF_MEMORY, H100)
    assert answer.result.verdict.startswith("the engine refused to start: the device ran out of memory")
    (refusal,) = answer.result.refusals
    # Both lines are of one event: the one has the bytes, the other what was tried.
    assert "0.58 GiB more, after the KV pool was set" in refusal.explanation
    assert "1,024 requests" in refusal.explanation
    # One hundredth of 79.2 GiB is more than 594 MiB.
    assert refusal.remedies[0] == "--gpu-memory-utilization 0.97 leaves as much more free"
    assert any("--max-num-seqs below 1024" in remedy and "own advice" in remedy for remedy in refusal.remedies)


def test_where_the_log_does_not_say_how_much_was_lacking_nor_do_the_remedies() -> None:
    rows = [row for row in samples.OUT_OF_MEMORY.splitlines() if "Tried to allocate" not in row]
    first = remedies("\n".join(rows), H100)[0]
    assert first.startswith("--gpu-memory-utilization 0.97 leaves more free")
    assert "does not say how much" in first


def test_as_many_sequences_as_there_are_states_start() -> None:
    answer = compare_text(samples.STATES_REFUSED, H200)
    (refusal,) = answer.result.refusals
    assert "9,000" in refusal.explanation
    assert "5,150" in refusal.explanation
    assert refusal.remedies[0] == "--max-num-seqs 5150 is the most that the engine's own blocks admit"
    assert {item.name: item.value for item in answer.inputs}["max_num_seqs"] == 9000
    assert any("tensor parallelism over 4 GPUs" in remedy for remedy in refusal.remedies)
    # A narrower KV cache leaves the states as they are.
    assert not any("kv-cache-dtype" in remedy for remedy in refusal.remedies)


def test_a_fraction_that_is_too_high_is_mended_on_the_card_of_the_log() -> None:
    text = (
        samples.FREE_MEMORY.replace("(60.00/79.15 GiB)", "(20.11/23.53 GiB)")
        .replace("71.23", "21.18")
        .replace("0.11.0", "0.19.0")
    )
    ask = Ask(gpus=("rtx-4090",))
    first = remedies(text, ask)[0]
    assert first.startswith("--gpu-memory-utilization 0.85 is the highest")
    assert "too little for one sequence of 32,768 tokens: with --max-model-len" in first
    length = int(first.partition("--max-model-len ")[2].split()[0])
    # The pool of the proposal is that of the card in the log, which has less than the catalog's.
    tried = replace(ask, models=("qwen3-8b",), tp=1, engine="vllm", engine_version="0.19.0", memory_fraction=0.85)
    of_catalog = memory(replace(tried, max_model_len=length)).results[0].kv_pool_bytes
    proposed = float(first.partition("a KV pool of ")[2].split()[0]) * GIB
    assert of_catalog - proposed == pytest.approx(0.85 * (23.65 - 23.53) * GIB, abs=0.02 * GIB)
    assert not memory(replace(tried, max_model_len=length + 2048)).results[0].fits


def test_the_fraction_that_a_refusal_states_is_taken() -> None:
    given = {item.name: item.origin for item in compare_text(samples.FREE_MEMORY, Ask(gpus=("a100",))).inputs}
    assert given["memory_fraction"] == "given in the log, line 2"

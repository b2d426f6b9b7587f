"""Conversations in words (ShareGPT, WildChat, LMSYS) as requests, their tokens estimated where there is no tokenizer.

Estimate: one token for each four bytes of UTF-8. English prose and code take 3.5 to 4.8 bytes per token in the
tokenizers of current models, Chinese and Japanese 3 to 4.5 (about three bytes a character); hence a band of 25 % either
way. Source: the rule of thumb of four characters to a token that OpenAI publishes for English, counted in bytes so that
other scripts are not taken for a quarter of what they are.

Benchmarks (vLLM, SGLang) take the first turn as the prompt and the second as the answer, and leave out prompts and
answers below 4 tokens, prompts above 1,024 and pairs above 2,048. The same is done here; ``sessions`` takes every turn
with all that was said before it in its prompt, and leaves out nothing but empty ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infcalc.frozen import frozen
from infcalc.workload.faults import Faults, shown
from infcalc.workload.trace import Ints

BYTES_PER_TOKEN = 4.0
ESTIMATE_LOW, ESTIMATE_HIGH = 0.75, 1.25
"""Band of an estimated token count, as factors of it."""
_LEAST_TOKENS = 4
_MOST_PROMPT_TOKENS = 1024
_MOST_TOKENS = 2048
_TALKS = ("conversations", "conversation", "messages")
_PEOPLE = frozenset({"human", "user"})
_MODELS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})
_PAIR = 2


@frozen
class Talks:
    """Prompts and answers of conversations, in tokens: those of each conversation one after the other."""

    conversation_ids: Ints
    said_tokens: Ints
    answer_tokens: Ints
    num_left_out: int


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has.

    >>> estimated_tokens("The quick brown fox jumps over the lazy dog.")
    11
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // int(BYTES_PER_TOKEN))


def talks(records: Sequence[Mapping[str, Any]], lines: Sequence[int], faults: Faults, *, sessions: bool) -> Talks:
    """Return the requests of conversations: the first pair of turns of each, or with ``sessions`` all of them."""
    owners: list[int] = []
    said: list[int] = []
    answers: list[int] = []
    left_out = 0
    for place, (record, line) in enumerate(zip(records, lines, strict=True)):
        turns = _turns(record, line, faults)
        pairs = _pairs(turns) if sessions else _first_pair(turns)
        if not pairs:
            left_out += 1
        for prompt, answer in pairs:
            owners.append(place)
            said.append(prompt)
            answers.append(answer)
    return Talks(
        conversation_ids=np.array(owners, dtype=np.int64),
        said_tokens=np.array(said, dtype=np.int64),
        answer_tokens=np.array(answers, dtype=np.int64),
        num_left_out=left_out,
    )


def _turns(record: Mapping[str, Any], line: int, faults: Faults) -> list[tuple[str, int]]:
    """Return who spoke and how many tokens, turn by turn."""
    talk = next((record[name] for name in _TALKS if name in record), None)
    if not isinstance(talk, list):
        faults.add(line, f"no list of turns under {', '.join(_TALKS)}: {shown(list(record))}")
        return []
    found = []
    for number, turn in enumerate(talk, 1):
        speaker = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
        text = turn.get("value", turn.get("content")) if isinstance(turn, dict) else None
        if not isinstance(text, str):
            faults.add(line, f"turn {number} has no text under value or content: {shown(turn)}")
            continue
        found.append((str(speaker).lower(), estimated_tokens(text)))
    return found


def _first_pair(turns: list[tuple[str, int]]) -> list[tuple[int, int]]:
    if len(turns) < _PAIR:
        return []
    prompt, answer = turns[0][1], turns[1][1]
    fits = prompt <= _MOST_PROMPT_TOKENS and prompt + answer <= _MOST_TOKENS
    return [(prompt, answer)] if min(prompt, answer) >= _LEAST_TOKENS and fits else []


def _pairs(turns: list[tuple[str, int]]) -> list[tuple[int, int]]:
    """Return what was said before each answer (by people, a system or tools) and the answer."""
    found: list[tuple[int, int]] = []
    said = 0
    for speaker, size in turns:
        if speaker in _MODELS:
            if said and size:
                found.append((said, size))
                said = 0
            continue
        said += size
    return found

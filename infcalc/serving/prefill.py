"""The time of devices that a prompt takes, where steps are full of prompts like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.serving.times import Prompts

if TYPE_CHECKING:
    from infcalc.serving.times import Clock


def prefill_s(clock: Clock, *, new_tokens: float, cached_tokens: float, budget_tokens: float) -> float:
    """Return a prompt's share, in seconds, of steps with ``budget_tokens`` of such prompts and nothing in decode.

    ``new_tokens`` (one at least: engines compute the last token) come after ``cached_tokens`` that were found. A prompt
    that is longer than a step counts as so many chunks from its middle. The weights that a step reads are paid for by
    all of its prompts: what a busy server spends on one, not how long one waits.
    """
    prompt = max(new_tokens, 1.0)
    number, each, before = Prompts(prompt_tokens=prompt, cached_tokens=cached_tokens).step(budget_tokens)
    step_s = clock.step_s(num_decodes=0, context_tokens=0, num_prefills=number, new_tokens=each, cached_tokens=before)
    return prompt / (number * each) * float(step_s)

"""What a picture says of what it shows: what all its series share, and what tells them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.report.table import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.answer import Answer


def joined(*texts: str) -> str:
    """Return the texts that say something, with commas between.

    >>> joined("vllm", "", "bf16")
    'vllm, bf16'
    """
    return ", ".join(text for text in texts if text)


def told_apart(results: Sequence[Any]) -> tuple[str, list[str]]:
    """Return what all results share, and for each what only some do: model, GPUs, precisions and engine."""
    facets = [_facets(result) for result in results]
    shared = [len(set(column)) == 1 for column in zip(*facets, strict=True)]
    common = joined(*(text for text, same in zip(facets[0], shared, strict=True) if same))
    return common, [joined(*(text for text, same in zip(one, shared, strict=True) if not same)) for one in facets]


def _facets(result: Any) -> list[str]:  # noqa: ANN401 - results of all commands
    gpus = f"{result.num_gpus} x {result.gpu}" if hasattr(result, "gpu") else ""
    told = (("weights", "weights in {}"), ("kv_dtype", "KV cache in {}"), ("engine", "{}"))
    return [
        result.model,
        gpus,
        *(text.format(getattr(result, key)) if hasattr(result, key) else "" for key, text in told),
    ]


def said(answer: Answer[Any], *names: str) -> str:
    """Return in words those inputs of an answer that it has, in the order of ``names``."""
    found = {item.name: named(item) for item in answer.inputs}
    return joined(*(found.get(name, "") for name in names))

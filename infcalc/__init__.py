"""infcalc: capacity planner and roofline analyzer for LLM inference.

One function per question, each returning an :class:`~infcalc.api.answer.Answer`:

>>> from infcalc import Ask, kv
>>> kv(Ask(models=("llama3-70b",), num_gpus=4)).result.kv_bytes_per_token
327680
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.concurrency import concurrency
    from infcalc.api.deployment import Ask
    from infcalc.api.kv import kv
    from infcalc.api.listing import gpus, models, show
    from infcalc.api.roofline import roofline
    from infcalc.api.speculate import DraftAsk, speculate
    from infcalc.errors import InfcalcError

__all__ = [
    "Answer",
    "Ask",
    "DraftAsk",
    "InfcalcError",
    "concurrency",
    "gpus",
    "kv",
    "models",
    "roofline",
    "show",
    "speculate",
]

_HOMES = {
    "Answer": "infcalc.api.answer",
    "Ask": "infcalc.api.deployment",
    "DraftAsk": "infcalc.api.speculate",
    "InfcalcError": "infcalc.errors",
    "concurrency": "infcalc.api.concurrency",
    "gpus": "infcalc.api.listing",
    "kv": "infcalc.api.kv",
    "models": "infcalc.api.listing",
    "roofline": "infcalc.api.roofline",
    "show": "infcalc.api.listing",
    "speculate": "infcalc.api.speculate",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used: importing infcalc alone costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'infcalc' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only with the first name

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]

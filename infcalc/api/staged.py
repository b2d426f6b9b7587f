"""Which pipeline stage a log's figures are of: a rank is compared with what is predicted of its own stage."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.sizing import page_settings
from infcalc.engines.logs.reading import EngineLog, Quantity
from infcalc.engines.rules import FractionBase
from infcalc.memory.blocks import plan

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.engines.logs.reading import Figure
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.parallelism import Parallelism

_LABEL = re.compile(r"\bPP([0-9]{1,5})\b")
_NUMBER = re.compile(r"^rank ([0-9]{1,5})$")
_ROOMS = (Quantity.POOL, Quantity.FREE_AFTER_WEIGHTS, Quantity.WEIGHTS)
"""What tells how many tokens a stage holds, the surest first."""


def stage_of(rank: str, ranks: Parallelism) -> int | None:
    """Return the pipeline stage of a rank as a log names it; None where the name does not tell.

    Engines number ranks stage by stage: all of tensor parallelism in the first, then the next.
    """
    if ranks.pp == 1:
        return 0
    label, number = _LABEL.search(rank), _NUMBER.match(rank)
    stage = int(label[1]) if label else int(number[1]) // ranks.tp % ranks.pp if number else None
    return stage if stage is not None and stage < ranks.pp else None


def on_one_stage(log: EngineLog, deployment: Deployment, form: KvFormat) -> tuple[EngineLog, int | None]:
    """Return the log with the rank that holds the fewest tokens as the compared one, and its stage.

    The stage is None where there is only one, or no line names one.
    """
    ranks = deployment.parallelism
    if ranks.pp == 1 or deployment.rules.fraction_base is FractionBase.NONE:
        return log, None
    for quantity in _ROOMS:
        found = [(figure, stage) for figure in log.of(quantity) if (stage := stage_of(figure.rank, ranks)) is not None]
        if found:
            figure, stage = min(found, key=lambda pair: _blocks(pair[0], pair[1], deployment, form))
            return replace(log, compared_rank=figure.rank), stage
    return log, None


def _blocks(figure: Figure, stage: int, deployment: Deployment, form: KvFormat) -> float:
    settings = page_settings(deployment)
    cut = plan(deployment.model, form, deployment.parallelism, deployment.rules, settings, stage=stage)
    return figure.value / max(1, cut.block_bytes)


def unnamed_stage(log: EngineLog, stage: int | None, ranks: Parallelism, governing: int) -> tuple[str, ...]:
    """Return a warning where memory is printed of a pipeline, and no line names a stage."""
    if ranks.pp == 1 or stage is not None or log.engine == "llama.cpp":
        return ()
    figure = next((one for quantity in _ROOMS for one in log.of(quantity)), None)
    if figure is None:
        return ()
    said = f"line {figure.line}: no line names its pipeline stage, of which there are {ranks.pp}"
    return (f"{said}: taken to be of stage {governing}, which holds the fewest tokens",)

"""What may be said of a launch beside the deployment."""

from __future__ import annotations

from enum import StrEnum

from infcalc.api.ranges import check_ranges
from infcalc.errors import UsageError
from infcalc.frozen import frozen


class Target(StrEnum):
    """What is written."""

    SHELL = "shell"
    PYTHON = "python"
    DOCKER = "docker"
    KUBERNETES = "kubernetes"
    KSERVE = "kserve"


@frozen
class LaunchAsk:
    """How a deployment is started; empty and None mean: as the engine does, everything that can be written.

    ``num_replicas`` decode where ``num_prefill_replicas`` make a disaggregated pair. ``drafter`` is ``ngram``, which
    needs no weights; heads, draft models and MTP layers belong to the deployment. ``reasons`` replace those of the
    settings they name.
    """

    targets: tuple[str, ...] = ()
    num_replicas: int = 1
    num_prefill_replicas: int = 0
    drafter: str | None = None
    num_draft_tokens: int | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    model_id: str | None = None
    served_name: str | None = None
    port: int | None = None
    reasons: tuple[tuple[str, str], ...] = ()


_MOST_REPLICAS = 10_000
_MOST_DRAFTS = 128
_LAST_PORT = 65_535
_ALL = "all"


def chosen_targets(how: LaunchAsk) -> tuple[Target, ...]:
    """Return the targets asked for; all of them where none is, or ``all``.

    Raises:
        UsageError: there is no such target, or a number is out of range.

    """
    counts = (
        ("--replicas", how.num_replicas, 1, _MOST_REPLICAS),
        ("--prefill-replicas", how.num_prefill_replicas, 0, _MOST_REPLICAS),
        ("--num-draft-tokens", how.num_draft_tokens, 1, _MOST_DRAFTS),
        ("--port", how.port, 1, _LAST_PORT),
    )
    check_ranges(counts)
    if how.drafter not in {None, "ngram"}:
        raise UsageError(
            f"{how.drafter!r} adds nothing of its own",
            place="--method",
            hint="ngram needs no weights; --draft-model and --mtp-tokens name the others",
        )
    for option, name in (("--model-id", how.model_id), ("--served-name", how.served_name)):
        if name is not None and (not name.strip() or name.startswith("-")):
            raise UsageError(
                f"{name!r} is no name" if not name.strip() else f"{name!r} would be read as an option",
                place=option,
                hint="a hub id or path, as meta-llama/Llama-3.1-8B" if option == "--model-id" else "any other name",
            )
    words = tuple(word.strip().lower() for word in how.targets)
    if not words or _ALL in words:
        return tuple(Target)
    unknown = [word for word in words if word not in set(Target)]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is not a target", place="--target", hint=f"one of {', '.join(Target)}, {_ALL}"
        )
    return tuple(target for target in Target if target in words)

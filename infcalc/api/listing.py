"""Which models and GPUs does the catalog know, and what does it say of one?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, load, stored_in
from infcalc.errors import UnknownName
from infcalc.frozen import frozen
from infcalc.planning.prices import STALE_DAYS, age_warning, middle_usd_per_hour, standing_of
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.catalog.lookup import Catalog, GpuEntry, ModelEntry
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model


_NEAR = 3
"""Names of models and of GPUs that an unknown name is told."""


@frozen
class ModelRow:
    """One model in short. Parameters are of the decoder with embeddings, counted from its tensors."""

    name: str
    hf_id: str | None
    architecture: str
    parameters: int
    active_parameters: int
    layers: int
    hidden_size: int
    kv_bytes_per_token: int | float
    weights: str
    weights_bytes: int
    max_context_tokens: int | None
    doubtful: bool


@frozen
class GpuRow:
    """One GPU in short; the peak is dense bf16, the price the one that other commands take."""

    name: str
    title: str
    architecture: str
    memory_bytes: int
    cuda_total_bytes: int
    cuda_total_estimated: bool
    bandwidth_bytes_per_s: float
    peak_bf16_flop_per_s: float | None
    crossover_flop_per_byte: float | None
    price_usd_per_hour: float | None
    price_date: str
    doubtful: bool


@frozen
class ModelsResult:
    """All models whose name, id or architecture holds the asked text."""

    models: tuple[ModelRow, ...]


@frozen
class GpusResult:
    """All GPUs whose name, title or architecture holds the asked text."""

    gpus: tuple[GpuRow, ...]


@frozen
class ShowResult:
    """One entry of the catalog: its mapping as an overlay would write it, and where each value came from."""

    section: str
    name: str
    entry: Mapping[str, object]
    origins: Mapping[str, str]
    derived: Mapping[str, object]


def models(ask: Ask | None = None, *, text: str = "") -> Answer[ModelsResult]:
    """Return the models of the catalog, those that hold ``text`` where one is given."""
    catalog = load(ask or Ask())
    wanted = text.lower()
    found = [
        entry.model
        for entry in (catalog.model(name) for name in catalog.model_names())
        if wanted in _spelled(entry.model.name, entry.model.hf_id, entry.model.architecture, *entry.model.aliases)
    ]
    return Answer(
        command="models",
        results=(ModelsResult(models=tuple(_model_row(model) for model in found)),),
        inputs=_text(text),
        warnings=() if found else _unmatched(text, catalog, "models"),
    )


def gpus(ask: Ask | None = None, *, text: str = "", today: str = "") -> Answer[GpusResult]:
    """Return the GPUs of the catalog, those that hold ``text`` where one is given.

    Prices are held against ``today`` (ISO date; empty: they are not).
    """
    catalog = load(ask or Ask())
    wanted = text.lower()
    found = [
        entry.gpu
        for entry in (catalog.gpu(name) for name in catalog.gpu_names())
        if wanted
        in _spelled(entry.gpu.name, entry.gpu.title, entry.gpu.architecture, entry.gpu.vendor, *entry.gpu.aliases)
    ]
    return Answer(
        command="gpus",
        results=(GpusResult(gpus=tuple(_gpu_row(gpu) for gpu in found)),),
        inputs=_text(text),
        warnings=_old(found, today) if found else _unmatched(text, catalog, "gpus"),
    )


def _old(found: list[Gpu], today: str) -> tuple[str, ...]:
    """Return the warning that prices are old, where some are."""
    if not today:
        return ()
    standing = [(gpu.name, standing_of(gpu.prices)) for gpu in found]
    old = [name for name, one in standing if one is not None and age_warning(name, one.price.date, today)]
    return (f"prices older than {STALE_DAYS} days: {', '.join(old)}",) if old else ()


def _unmatched(text: str, catalog: Catalog, section: str) -> tuple[str, ...]:
    """Return the warning that nothing holds the asked text, with names that come near."""
    from infcalc.catalog.lookup import nearest  # noqa: PLC0415 - only where nothing was found

    what, command = ("model", "models") if section == "models" else ("GPU", "gpus")
    near = nearest(text, catalog.index(section))
    mend = f"near it: {', '.join(near)}" if near else f"`infcalc {command} list` lists all"
    return (f"no {what} holds {text!r} in its name, id or architecture; {mend}",)


def show(name: str, ask: Ask | None = None, *, sections: tuple[str, ...] = ("models", "gpus")) -> Answer[ShowResult]:
    """Return all that the catalog says of one model or GPU, with the origin of each value.

    Raises:
        UnknownName: neither section knows the name.
        FileProblem: the name is a path that cannot be read.

    """
    catalog = load(ask or Ask())
    near_gpus: tuple[str, ...] = ()
    if "gpus" in sections:
        try:
            return _gpu_answer(catalog, catalog.gpu(name))
        except UnknownName as no_gpu:
            if "models" not in sections:
                raise
            near_gpus = no_gpu.nearest
    from infcalc import files  # noqa: PLC0415 - opening files is only needed here

    try:
        return _model_answer(files.load_model(catalog, name))
    except UnknownName as no_model:
        if "gpus" not in sections:
            raise
        near = tuple(dict.fromkeys((*no_model.nearest[:_NEAR], *near_gpus[:_NEAR])))
        raise UnknownName("model or GPU", name, near) from None


def _spelled(*words: str | None) -> str:
    return " ".join(word for word in words if word).lower()


def _text(text: str) -> tuple[Input, ...]:
    return (Input(name="text", value=text, origin="given"),) if text else ()


def _model_answer(entry: ModelEntry) -> Answer[ShowResult]:
    from infcalc.catalog.codec import model_to_mapping  # noqa: PLC0415 - only here is a model written

    row = _model_row(entry.model)
    derived = {
        "parameters": row.parameters,
        "active_parameters": row.active_parameters,
        "weights_bytes": row.weights_bytes,
        "kv_bytes_per_token": row.kv_bytes_per_token,
    }
    return _show(
        "models",
        entry.model.name,
        entry=model_to_mapping(entry.model),
        origins=entry.origins,
        derived=derived,
        talk=(*entry.assumptions, *entry.warnings),
    )


def _gpu_answer(catalog: Catalog, entry: GpuEntry) -> Answer[ShowResult]:
    row = _gpu_row(entry.gpu)
    derived = {
        "cuda_total_bytes": row.cuda_total_bytes,
        "cuda_total_estimated": row.cuda_total_estimated,
        "crossover_flop_per_byte": row.crossover_flop_per_byte,
    }
    mapping = catalog.mapping("gpus", entry.gpu.name)
    return _show("gpus", entry.gpu.name, entry=mapping, origins=entry.origins, derived=derived, talk=entry.warnings)


def _show(
    section: str,
    name: str,
    *,
    entry: Mapping[str, object],
    origins: Mapping[str, str],
    derived: Mapping[str, object],
    talk: tuple[str, ...],
) -> Answer[ShowResult]:
    kept = {key: place for key, place in origins.items() if key in entry}
    return Answer(
        command="show",
        results=(ShowResult(section=section, name=name, entry=entry, origins=kept, derived=derived),),
        inputs=(Input(name="name", value=name, origin="given"),),
        warnings=distinct(list(talk)),
    )


def _model_row(model: Model) -> ModelRow:
    from infcalc.lowering.tensors import inventory, parameters  # noqa: PLC0415 - GPUs need no tensors
    from infcalc.memory.kv import kv_components, slope_bytes_per_token  # noqa: PLC0415
    from infcalc.memory.weights import weights_total_bytes  # noqa: PLC0415
    from infcalc.spec.kv import KV_FORMATS  # noqa: PLC0415

    counted = parameters(inventory(model))
    return ModelRow(
        name=model.name,
        hf_id=model.hf_id,
        architecture=model.architecture,
        parameters=counted.total,
        active_parameters=counted.active,
        layers=model.num_layers,
        hidden_size=model.hidden_size,
        kv_bytes_per_token=slope_bytes_per_token(kv_components(model, KV_FORMATS["bf16"])),
        weights=stored_in(model),
        weights_bytes=weights_total_bytes(model),
        max_context_tokens=model.max_context_tokens,
        doubtful=bool(model.doubts),
    )


def _gpu_row(gpu: Gpu) -> GpuRow:
    peak = gpu.peak("bf16")
    standing = standing_of(gpu.prices)
    return GpuRow(
        name=gpu.name,
        title=gpu.title,
        architecture=gpu.architecture,
        memory_bytes=gpu.memory_bytes,
        cuda_total_bytes=gpu.cuda_total_bytes,
        cuda_total_estimated=gpu.cuda_total_estimated,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        peak_bf16_flop_per_s=peak,
        crossover_flop_per_byte=peak / gpu.bandwidth_bytes_per_s if peak else None,
        price_usd_per_hour=middle_usd_per_hour(standing.price) if standing else None,
        price_date=standing.price.date if standing else "",
        doubtful=bool(gpu.doubts),
    )


def names_of(kind: str) -> tuple[str, ...]:
    """Return the names that a word may complete to: of ``models``, ``gpus`` or ``engines``."""
    if kind == "engines":
        from infcalc.engines.rules import ENGINES  # noqa: PLC0415 - heavier than a listing

        return ENGINES
    return load(Ask()).names(kind)

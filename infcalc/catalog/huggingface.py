"""A Hugging Face ``config.json``, already parsed, to a :class:`~infcalc.spec.model.Model`."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from infcalc.catalog.architectures import ADAPTERS, REFUSED
from infcalc.catalog.architectures.reader import Reader, listed, shown
from infcalc.errors import FileProblem, UnsupportedArchitecture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.spec.model import Model
    from infcalc.spec.weights import WeightQuantization

_NESTED = ("text_config", "llm_config", "language_config")
_TOWERS = {
    "vision_config": "vision tower (vision_config)",
    "visual": "vision tower (visual)",
    "vision_encoder": "vision tower (vision_encoder)",
    "vision_tower_config": "vision tower (vision_tower_config)",
    "audio_config": "audio tower (audio_config)",
    "speech_config": "speech tower (speech_config)",
    "talker_config": "talker (talker_config)",
    "token2wav_config": "speech decoder (token2wav_config)",
    "code2wav_config": "speech decoder (code2wav_config)",
}


def from_config(
    config: Mapping[str, object],
    *,
    name: str = "model",
    quantization: WeightQuantization | None = None,
    kv_dtype: str | None = None,
) -> Model:
    """Return the model that ``config`` describes.

    The decoder of a multimodal config is found in ``text_config``, ``llm_config``, ``language_config`` or
    ``thinker_config.text_config``; vision and audio parts are named in ``unmodelled``. ``quantization`` and
    ``kv_dtype`` come from the config's quantization block (see :mod:`infcalc.catalog.quantization`).

    Raises:
        FileProblem: a key is missing or has an impossible value; the message names it.
        UnsupportedArchitecture: the architecture, or a key that shapes its layers, is not understood.

    """
    outer = Reader(config)
    reader = _text(outer)
    model_type = _model_type(reader, outer)
    module, _, function = _adapter(model_type, reader).partition(":")
    adapt = cast("Callable[[Reader], Model]", getattr(importlib.import_module(module), function))
    found = adapt(reader)
    reader.accept(*_TOWERS)
    reader.refuse_unread(model_type)
    towers = {
        title
        for source in {id(outer): outer, id(reader): reader}.values()
        for key, title in _TOWERS.items()
        if source.config.get(key)
    }
    return replace(
        found,
        name=name,
        architecture=model_type,
        quantization=quantization,
        kv_dtype=kv_dtype,
        unmodelled=tuple(sorted(towers)),
    )


def _text(outer: Reader) -> Reader:
    """Return the reader of the decoder's own section."""
    thinker = outer.section("thinker_config")
    for source in (thinker, outer) if thinker is not None else (outer,):
        for key in _NESTED:
            found = source.section(key)
            if found is not None:
                return found
    return thinker or outer


def _model_type(reader: Reader, outer: Reader) -> str:
    model_type = reader.text("model_type") or outer.text("model_type")
    if not model_type:
        raise FileProblem(
            "key 'model_type' is missing",
            place=reader.place("model_type"),
            hint="is this the config.json of a model, as published with its weights?",
        )
    # A text section often leaves its type to the wrapper, whose own text type has a suffix.
    if model_type not in ADAPTERS and reader is not outer and f"{model_type}_text" in ADAPTERS:
        return f"{model_type}_text"
    return model_type


def _how_to_describe(reader: Reader) -> str:
    """Return the mend of an unknown architecture, and the structural keys its adapter would have to read."""
    mend = "describe the model in an overlay file, as docs/catalog.md shows"
    unread = listed(reader.unread())
    return f"{mend}; the keys that shape it: {unread}" if unread else mend


def _adapter(model_type: str, reader: Reader) -> str:
    target = ADAPTERS.get(model_type)
    if target is not None:
        return target
    known = REFUSED.get(model_type)
    raise UnsupportedArchitecture(
        f"model_type {shown(model_type)} is not understood" + (f": {known}" if known else ""),
        place=f"config.json {reader.path}model_type",
        hint=_how_to_describe(reader),
    )

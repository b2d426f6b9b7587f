"""From parsed options to what the api takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.api.deployment import AUTOMATIC_LENGTH, Ask
from infcalc.errors import UsageError
from infcalc.units import GIB, parse_quantity, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infcalc.api.simulated_drafting import SimulationAsk
    from infcalc.api.users import Load
    from infcalc.cli.options import Option


_MAX_GIB = 1_000_000


def refuse_empty(table: Sequence[Option], options: Mapping[str, Any]) -> None:
    """Refuse a value without content: ``--kv-dtype ""`` is most likely a shell variable that was never set.

    Raises:
        UsageError: an option has an empty value, or a list with nothing between two commas.

    """
    for option in table:
        value = options.get(option.name)
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and not text.strip(" \t,") for text in texts):
            raise UsageError("an empty value", place=option.flags[0], hint="leave the option out to get its default")


def refuse_empty_arguments(names: Iterable[str], options: Mapping[str, Any]) -> None:
    """Refuse an argument without content, for the same reason.

    Raises:
        UsageError: an argument is there, and is blank.

    """
    for name in names:
        value = options.get(name)
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and not text.strip() for text in texts):
            hint = "name a file, or - for standard input" if name == "file" else "name it, or leave it out"
            raise UsageError("an empty name", place=name.upper(), hint=hint)


def simulation_from(options: Mapping[str, Any]) -> SimulationAsk | None:
    """Return the simulation of a command's options, where one is asked for.

    Raises:
        UsageError: a seed, and nothing to draw.

    """
    rounds, seed = options["simulate"], options["seed"]
    if rounds is None:
        if seed is not None:
            raise UsageError("a seed, and nothing to draw", place="--seed", hint="add --simulate 100000")
        return None
    from infcalc.api.simulated_drafting import SimulationAsk  # noqa: PLC0415 - one command asks for it

    return SimulationAsk(num_rounds=rounds, seed=seed or 0)


def ask_from(options: Mapping[str, Any]) -> Ask:
    """Return the ask of a command's options.

    Raises:
        UsageError: ``--quant`` and ``--kv-dtype`` both given, or a length that is not a token count.

    """
    if options.get("quant") and options.get("kv_dtype"):
        raise UsageError(
            "both --quant and --kv-dtype", place="--quant", hint="--quant is short for --kv-dtype: give one"
        )
    length = options.get("max_model_len")
    return Ask(
        models=split(options.get("model")),
        gpus=split(options.get("gpu")),
        num_gpus=options.get("gpus"),
        tp=options.get("tp"),
        pp=options.get("pp"),
        dp=options.get("dp"),
        ep=options.get("ep"),
        dcp=options.get("dcp"),
        weights=options.get("weights"),
        kv_dtypes=listed(
            options.get("quant") or options.get("kv_dtype"), "--quant" if options.get("quant") else "--kv-dtype"
        ),
        engine=options.get("engine"),
        engine_version=options.get("engine_version"),
        memory_fraction=options.get("memory_fraction"),
        max_model_len=None if length is None else _length(length),
        max_num_seqs=options.get("max_num_seqs"),
        max_num_batched_tokens=options.get("max_num_batched_tokens"),
        block_size=options.get("block_size"),
        enforce_eager=options.get("enforce_eager", False),
        # Where several ways of drafting may be named, they are no property of the deployment.
        method=options["method"] if isinstance(options.get("method"), str) else None,
        num_draft_tokens=options.get("mtp_tokens"),
        # `speculate` prices the draft that it names; elsewhere it lies beside the model.
        draft_model=options.get("draft_model") if "mtp_tokens" in options else None,
        num_lookahead_tokens=options.get("num_draft_tokens") if "mtp_tokens" in options else None,
        lora_rank=options.get("lora_rank"),
        num_adapters=options.get("max_loras"),
        text_only=options.get("text_only", False),
        cpu_offload_bytes=_gib(options.get("cpu_offload_gb"), "--cpu-offload-gb"),
        kv_offload_bytes=_gib(options.get("kv_offload_gib"), "--kv-offload-gib"),
        catalogs=split(options.get("catalog")),
    )


def _gib(value: float | None, place: str) -> int:
    if value is None:
        return 0
    if not 0 <= value <= _MAX_GIB:
        raise UsageError(f"{value:g} GiB is out of range", place=place, hint=f"GiB, from 0 to {_MAX_GIB:,}")
    return round(value * GIB)


def contexts_from(options: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the asked context lengths in tokens; empty where none was given."""
    return tuple(tokens(text, "--context") for text in listed(options.get("context"), "--context"))


def load_from(options: Mapping[str, Any]) -> Load | None:
    """Return what the load options say; None where none was given.

    Raises:
        UsageError: a time that is none.

    """
    names = ("input_tokens", "output_tokens", "think_time", "service_time", "users")
    if all(options.get(name) is None for name in names):
        return None
    from infcalc.api.users import Load  # noqa: PLC0415 - only with lengths

    return Load(
        input_tokens=options.get("input_tokens"),
        output_tokens=options.get("output_tokens"),
        think_time_s=seconds(options.get("think_time"), "--think-time"),
        service_time_s=seconds(options.get("service_time"), "--service-time"),
        users=options.get("users"),
    )


def seconds(text: str | None, place: str) -> float | None:
    """Return a duration in seconds; a bare number is seconds.

    Raises:
        UsageError: not a duration.

    """
    if text is None:
        return None
    try:
        return float(parse_quantity(text if not text.strip()[-1:].isdigit() else f"{text} s", "seconds"))
    except ValueError as wrong:
        raise UsageError(str(wrong), place=place, hint="write 30, 30s or 500ms") from None


def _length(text: str) -> int:
    """Return ``--max-model-len``; vLLM's word for the longest that fits as it is, for which there is an answer."""
    if text.strip().lower() in {str(AUTOMATIC_LENGTH), "auto"}:
        return AUTOMATIC_LENGTH
    return tokens(text, "--max-model-len")


def tokens(text: str, place: str) -> int:
    """Return a token count.

    Raises:
        UsageError: not a positive whole number, with or without k or M.

    """
    try:
        return parse_tokens(text)
    except OverflowError:
        raise UsageError("more tokens than can be counted", place=place, hint="write 4096, 4k or 128k") from None
    except ValueError as wrong:
        raise UsageError(str(wrong), place=place, hint="write 4096, 4k or 128k") from None


def split(values: Iterable[str] | None) -> tuple[str, ...]:
    """Return the values of a repeatable option."""
    return tuple(value.strip() for value in values or ())


def listed(values: Iterable[str] | None, place: str) -> tuple[str, ...]:
    """Return the values of a repeatable option, each also split at its commas.

    Raises:
        UsageError: there is nothing between two commas, or at an end: one value was forgotten, or never set.

    """
    found = []
    for value in values or ():
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise UsageError(f"{value!r} has an empty item", place=place, hint="fill it, or leave out its comma")
        found += parts
    return tuple(found)


def whole_numbers(values: Iterable[str] | None, place: str) -> tuple[int, ...]:
    """Return whole numbers of a repeatable option.

    Raises:
        UsageError: one is not a whole number.

    """
    try:
        return tuple(int(text) for text in listed(values, place))
    except ValueError:
        raise UsageError(
            f"{' '.join(values or ())!r} is not a whole number", place=place, hint="write 1, 8 or 1,8,32"
        ) from None


def real_numbers(values: Iterable[str] | None, place: str) -> tuple[float, ...]:
    """Return the numbers of a list option.

    Raises:
        UsageError: one is not a number.

    """
    try:
        return tuple(float(text) for text in listed(values, place))
    except ValueError:
        raise UsageError(
            f"{' '.join(values or ())!r} is not a number or a list of numbers", place=place, hint="0.8 or 0.7,0.5,0.3"
        ) from None


def single(values: tuple[int, ...], place: str) -> int | None:
    """Return the one value of an option that the command takes once; None where it was not given.

    Raises:
        UsageError: there are several.

    """
    if len(values) > 1:
        raise UsageError(f"{len(values)} values", place=place, hint="this command takes one")
    return values[0] if values else None

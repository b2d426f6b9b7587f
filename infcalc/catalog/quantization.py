"""Quantization blocks of checkpoints, and the ``--weights`` words, to weight formats per tensor.

A block states a format for all linear layers and, by module names, what is left out or stored otherwise. The result is
a :class:`~infcalc.spec.weights.WeightQuantization`: one format and rules by role, tensor name and layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from infcalc.catalog.architectures.assembly import EXPERTS
from infcalc.catalog.architectures.reader import shown
from infcalc.catalog.gguf_mixes import MIXES, gguf_mix
from infcalc.catalog.module_dialects import ModuleKey
from infcalc.catalog.module_names import (
    NAMES_OF_ROLE,
    NO_LAYER,
    Selection,
    concerns_language_model,
    is_expression,
    merge,
    select,
    select_expression,
)
from infcalc.errors import FileProblem, UnsupportedArchitecture
from infcalc.frozen import frozen
from infcalc.spec.model import Model
from infcalc.spec.weights import (
    LINEAR_ROLES,
    TensorRole,
    WeightQuantization,
    WeightRule,
    weight_format,
)

_PLACE = "quantization_config"
_FLOATS = frozenset({"bf16", "fp16", "fp32"})
_MIN_BITS, _MAX_BITS = 2, 8
_USUAL_BITS = 4
_PLAIN_BITS = 16
_ACTIVATION_BITS = (4, 8, 16)
_BLOCK_SIDES = 2
_MAX_SIDE = 10**5
_MAX_LAYER_COUNT = 10_000
_MAX_NOTES = 3
_LISTED_KEYS = 12
_MAX_GROUP = 2**17
_MAX_PATTERNS = 100_000
_MAX_LAYER_MATCHES = 100_000
"""Patterns times layers that they may have to be tried on: some hundred expressions for the deepest models."""
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
_DTYPES = {"float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_LM_HEAD: Selection = {(TensorRole.LM_HEAD, "lm_head"): {NO_LAYER}}


@frozen
class QuantizationReading:
    """What a config says about precision: weights, KV cache (None: not quantized), and remarks worth printing."""

    quantization: WeightQuantization | None
    kv_dtype: str | None
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Plan:
    """Formats laid over one another while a block is read: a base, then selections in rising precedence."""

    method: str
    base: str
    plain: str
    num_layers: int
    num_mtp_layers: int
    family: str = ""
    """The ``model_type``, which says what modules are called."""
    has_experts: bool = False
    num_matches: int = 0
    overlays: list[tuple[Selection, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lay(self, selection: Selection, form: str) -> None:
        """Store the selected tensors as ``form``, whatever was said of them before."""
        if selection:
            self.overlays.append((selection, form))

    def select(self, patterns: Iterable[str]) -> Selection:
        """Return the tensors that any pattern names; remember those that name nothing known."""
        found: Selection = {}
        for pattern in patterns:
            if is_expression(pattern):
                self.count_expression()
            one = select(pattern, num_layers=self.num_layers, num_mtp_layers=self.num_mtp_layers, family=self.family)
            if not one and concerns_language_model(pattern) and not _names_later_expert(pattern):
                self.notes.append(f"module name {shown(pattern)} in {_PLACE} is not known and was passed over")
            merge(found, one)
        return found

    def select_expression(self, expression: str, place: str) -> Selection:
        """Return the tensors whose module name a regular expression matches from its start."""
        self.count_expression()
        return select_expression(
            expression,
            num_layers=self.num_layers,
            num_mtp_layers=self.num_mtp_layers,
            family=self.family,
            place=place,
        )

    def count_expression(self) -> None:
        """Count one more pattern that may have to be tried on every layer.

        Raises:
            FileProblem: there are too many of them.

        """
        self.num_matches += 1 + self.num_layers + self.num_mtp_layers
        if self.num_matches > _MAX_LAYER_MATCHES:
            raise FileProblem(
                "too many module patterns for so many layers",
                place=_PLACE,
                hint="name whole modules, or join patterns that differ by layer only",
            )


def read_quantization(
    config: Mapping[str, object], *, sidecar: Mapping[str, object] | None = None
) -> QuantizationReading:
    """Return the weight formats and KV-cache type that a ``config.json`` states.

    ``sidecar`` is the content of ``hf_quant_config.json``, where there is one. Without any quantization block the
    reading is empty; a KV-cache type is never inferred from the weights (a block that quantizes weights says nothing
    about the cache unless it has a ``kv_cache_scheme`` or the like).

    Raises:
        UnsupportedArchitecture: a method or scheme that is not understood; the message names it and its keys.
        FileProblem: a module pattern that is no regular expression.

    """
    block = _block(config, sidecar)
    if block is None:
        return QuantizationReading(quantization=None, kv_dtype=None)
    method = _method(block)
    reader = _READERS.get(method)
    if reader is None:
        raise UnsupportedArchitecture(
            f"quantization method {shown(method or '(none)')} is not understood; its keys: {_names(block)}",
            place=_PLACE,
            hint=f"understood are {', '.join(sorted(_READERS))}; or take it out of the config and state --weights",
        )
    text = _text_config(config)
    plan = _Plan(
        method=method,
        base="",
        plain=_DTYPES.get(_word(text, "torch_dtype", "dtype") or _word(config, "torch_dtype", "dtype") or "", "bf16"),
        num_layers=_count(text, _LAYER_KEYS),
        num_mtp_layers=_count(text, _MTP_KEYS),
        family=_word(text, "model_type") or "",
        has_experts=_has_experts(text),
    )
    kv_dtype = reader(block, text, plan)
    forms = {plan.base, *(form for _, form in plan.overlays)}
    if forms == {plan.plain} and kv_dtype is None:
        raise _not_understood(method, f"a block that quantizes nothing (its keys: {_names(block)})")
    notes = plan.notes
    if len(notes) > _MAX_NOTES:
        notes = [*notes[:_MAX_NOTES], f"... and {len(notes) - _MAX_NOTES} more such names"]
    return QuantizationReading(quantization=_quantization(plan), kv_dtype=kv_dtype, notes=tuple(notes))


def runtime_quantization(word: str, model: Model) -> WeightQuantization:
    """Return how ``model`` is stored when the engine, or a converter, quantizes it to ``word`` (option ``--weights``).

    Linear layers get the format; embeddings, head, norms and routers keep their own type, as vLLM's on-line
    quantization and the usual recipes leave them. ``bf16``, ``fp16`` and ``fp32`` are the type of every tensor. GGUF
    file types (``q4_k_m``) are approximate mixes. Where the checkpoint itself is of that method, its own rules hold.

    Raises:
        UsageError: an unknown word; the hint lists the nearest.

    """
    name = word.strip().lower().replace("-", "_")
    own = model.quantization
    if own is not None:
        stored = {_family(form) for form in (own.format, *(rule.format for rule in own.rules))}
        if name in {own.method.replace("-", "_"), own.format, *stored} - _FLOATS:
            return own
    if name in MIXES:
        return gguf_mix(name, model)
    return WeightQuantization(format=weight_format(name).name, method=name)


def _family(form: str) -> str:
    """Return the word of ``--weights`` that a format answers to: ``fp8`` for ``fp8_block``."""
    return form if form.startswith("int8_bnb") else form.partition("_")[0]


# Methods. Each fills the plan and returns the KV-cache type. -------------------------------------------------------


def _read_fp8(block: Mapping[str, object], text: Mapping[str, object], plan: _Plan) -> str | None:
    """FP8 as DeepSeek and Qwen publish it: per block, else per tensor; ``expert_dtype`` fp4 as DeepSeek V4 does."""
    _check_word(plan, block, "fmt", ("e4m3", "e4m3fn", "float8_e4m3", "float8_e4m3fn", "e5m2", "float8_e5m2"))
    _check_word(plan, block, "scale_fmt", ("ue8m0", "float", "float32", "fp32"))
    _check_word(plan, block, "activation_scheme", ("dynamic", "static"))
    stated = block.get("weight_block_size")
    size = _integers(stated)
    if stated is not None and len(size) != _BLOCK_SIDES:
        raise _not_understood(plan.method, f"weight_block_size {shown(stated)}")
    plan.base = _block_format(size, ue8m0=text.get("expert_dtype") is not None) if size else "fp8"
    _lay_excluded(plan, block, "modules_to_not_convert", "ignored_layers")
    if text.get("index_topk") is not None:
        # Head weights of the sparse-attention indexer stay at full width in DeepSeek's FP8 checkpoints.
        plan.lay({(TensorRole.INDEXER, "weights"): _every_layer(plan)}, plan.plain)
    expert = text.get("expert_dtype")
    if expert == "fp4":
        # Experts are MXFP4 (32 elements per E8M0 scale), multiplied with fp8 activations.
        plan.lay(_role(TensorRole.EXPERT, plan), "mxfp4_a8")
    elif expert not in (None, "fp8"):
        raise _not_understood(plan.method, f"expert_dtype {shown(expert)}")
    return None


def _check_word(plan: _Plan, block: Mapping[str, object], key: str, known: tuple[str, ...]) -> None:
    """Refuse a value of ``key`` other than null and ``known``."""
    value = block.get(key)
    if value is not None and value not in known:
        raise _not_understood(plan.method, f"{key} {shown(value)}")


def _read_fbgemm(block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """FBGEMM FP8: one fp32 scale per output channel."""
    plan.base = "fp8_channel_fp32"
    _lay_excluded(plan, block, "modules_to_not_convert")
    return None


def _read_compressed_tensors(block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """compressed-tensors: groups of targets, each with a scheme; ``ignore`` wins. A class name covers all linears."""
    groups = _mapping(block.get("config_groups"))
    if not groups:
        raise _not_understood(plan.method, f"no config_groups among {_names(block)}")
    plan.base = plan.plain
    named: list[tuple[Selection, str]] = []
    for name, value in groups.items():
        group = _mapping(value)
        weights = _mapping(group.get("weights"))
        if not weights:
            continue
        form = _scheme(weights, _mapping(group.get("input_activations")), f"{plan.method} {name}")
        targets = _words(group.get("targets")) or ("Linear",)
        classes = [target for target in targets if target[:1].isupper() and "." not in target]
        if classes:
            plan.base = form
        named.append((plan.select(target for target in targets if target not in classes), form))
    if plan.base != plan.plain:
        plan.lay(_LM_HEAD, plan.base)
    for selection, form in named:
        plan.lay(selection, form)
    _lay_excluded(plan, block, "ignore", keeps_lm_head=False)
    structure = _mapping(block.get("sparsity_config")).get("sparsity_structure")
    if structure not in (None, "0:0", "unstructured"):
        plan.notes.append(f"sparsity {structure} is stored compressed; it is counted here as dense")
    return _kv_scheme(block.get("kv_cache_scheme"))


def _read_awq(block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """AWQ: packed integers, a 16-bit scale and a packed zero point per group."""
    plan.base = _integer_format("awq", _bits(block, plan, "bits", "w_bit"), _group(block, "group_size", "q_group_size"))
    _lay_excluded(plan, block, "modules_to_not_convert")
    return None


def _read_gptq(block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """GPTQ: as AWQ, and an index per input column; ``dynamic`` overrides or leaves out modules by expression."""
    bits, group = _bits(block, plan, "bits", "w_bit"), _group(block, "group_size")
    plan.base = _integer_format("gptq", bits, group)
    covered = block.get("modules_in_block_to_quantize")
    if isinstance(covered, (list, tuple)) and covered:
        names = [name for part in covered for name in (_words(part) if isinstance(part, (list, tuple)) else (part,))]
        inside = plan.select(name for name in names if isinstance(name, str))
        form, plan.base = plan.base, plan.plain
        plan.lay(inside, form)
    for pattern, override in _mapping(block.get("dynamic")).items():
        sign, expression = (pattern[0], pattern[2:]) if pattern[:2] in {"+:", "-:"} else ("+", pattern)
        changed = _mapping(override)
        own = _integer_format(
            "gptq", _bits({"bits": bits, **changed}, plan, "bits"), _group(changed, "group_size") or group
        )
        plan.lay(
            plan.select_expression(expression, f"{_PLACE} dynamic"),
            plan.plain if sign == "-" else own,
        )
    _lay_excluded(plan, block, "modules_to_not_convert", keeps_lm_head=block.get("lm_head") is not True)
    if block.get("lm_head") is True:
        plan.lay(_LM_HEAD, plan.base)
    return None


def _read_auto_round(block: Mapping[str, object], text: Mapping[str, object], plan: _Plan) -> str | None:
    """AutoRound stores in the layout of GPTQ or AWQ; ``extra_config`` states other widths by module."""
    layout = str(block.get("packing_format") or block.get("backend") or "auto_gptq")
    family = "awq" if "awq" in layout else "gptq"
    bits, group = _bits(block, plan, "bits"), _group(block, "group_size")
    if block.get("data_type", "int") not in ("int", "int_asym", "int_sym"):
        raise _not_understood(plan.method, f"data_type {shown(block.get('data_type'))}")
    plan.base = _integer_format(family, bits, group)
    for name, override in _mapping(block.get("extra_config")).items():
        own = _mapping(override)
        width = own.get("bits", bits)
        form = (
            plan.plain
            if width == _PLAIN_BITS
            else _integer_format(family, _bits({"bits": width}, plan, "bits"), _group(own, "group_size") or group)
        )
        plan.lay(plan.select([name]), form)
    _lay_excluded(plan, block, "modules_to_not_convert")
    del text
    return None


def _read_mxfp4(_block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """MXFP4 as gpt-oss: experts only, whatever else the list of excluded modules repeats."""
    plan.base = plan.plain
    plan.lay(_role(TensorRole.EXPERT, plan), "mxfp4")
    return None


def _read_bitsandbytes(block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """bitsandbytes: 4 bits in blocks of 64 (scales quantized again by double quantization), or LLM.int8()."""
    if block.get("load_in_4bit") or block.get("_load_in_4bit"):
        kind = block.get("bnb_4bit_quant_type", "fp4")
        if kind not in ("nf4", "fp4"):
            raise _not_understood(plan.method, f"bnb_4bit_quant_type {shown(kind)}")
        plan.base = "nf4_dq" if block.get("bnb_4bit_use_double_quant") else "nf4"
    elif block.get("load_in_8bit") or block.get("_load_in_8bit"):
        plan.base = "int8_bnb"
    else:
        raise _not_understood(plan.method, "neither load_in_4bit nor load_in_8bit is set")
    _lay_excluded(plan, block, "llm_int8_skip_modules")
    return None


_MODELOPT = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel_fp32",
    "FP8_PB_WO": "fp8_block_a16",
    "FP8_PB_REAL": "fp8_block",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4_a16",
    "NVFP4_W4A16": "nvfp4_a16",
    "W4A8_NVFP4_FP8": "nvfp4_a8",
    "MXFP4": "mxfp4",
    "W4A16_MXFP4": "mxfp4_a16",
    "W4A8_MXFP4_FP8": "mxfp4_a8",
    "W4A8_MXFP4_MXFP8": "mxfp4_a8",
    "W4A16_AWQ": "int4_g128",
    "INT4_AWQ": "int4_g128",
    "W4A8_AWQ": "int4_g128_a8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "W8A16": "int8_a16",
    "INT8_WO": "int8_a16",
}


# Elements per scale, which these formats fix; what others say of groups has no meaning.
_MODELOPT_GROUPS = {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32}


def _read_modelopt(block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """NVIDIA ModelOpt, inline or as sidecar; MIXED_PRECISION states the algorithm module by module."""
    algorithm = _word(block, "quant_algo")
    if algorithm == "MIXED_PRECISION":
        plan.base = plan.plain
        for name, value in _mapping(block.get("quantized_layers")).items():
            own = _mapping(value)
            plan.lay(plan.select([name]), _modelopt_format(_word(own, "quant_algo"), own))
    elif algorithm is None:
        plan.base = plan.plain
    else:
        plan.base = _modelopt_format(algorithm, block)
        plan.lay(_LM_HEAD, plan.base)
    _lay_excluded(plan, block, "exclude_modules", "ignore", keeps_lm_head=False)
    named = _word(block, "kv_cache_quant_algo")
    return _kv_word(named) if named else _kv_scheme(block.get("kv_cache_scheme"))


def _modelopt_format(algorithm: str | None, block: Mapping[str, object]) -> str:
    """Return the format of a ModelOpt algorithm; the integer ones may state their group."""
    form = _MODELOPT.get((algorithm or "").upper())
    if form is None:
        raise _not_understood("modelopt", f"quant_algo {shown(algorithm)}")
    group = _group(block, "group_size")
    fixed = next((size for word, size in _MODELOPT_GROUPS.items() if form.startswith(word)), None)
    if fixed is not None and group not in {None, fixed}:
        raise _not_understood("modelopt", f"quant_algo {shown(algorithm)} with group_size {group}")
    return form.replace("g128", f"g{group}") if group else form


def _read_quark(block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """AMD Quark: a global scheme, schemes by module pattern, and excluded modules."""
    main = _mapping(block.get("global_quant_config"))
    plan.base = _quark_format(_mapping(main.get("weight")), _mapping(main.get("input_tensors")), plan)
    if plan.base != plan.plain:
        plan.lay(_LM_HEAD, plan.base)
    kv: dict[str, object] = dict(_mapping(block.get("kv_cache_quant_config")))
    for pattern, value in _mapping(block.get("layer_quant_config")).items():
        own = _mapping(value)
        plan.lay(
            plan.select([pattern]),
            _quark_format(_mapping(own.get("weight")), _mapping(own.get("input_tensors")), plan),
        )
        if pattern in _words(_mapping(block.get("export")).get("kv_cache_group")):
            kv[pattern] = own
    if _mapping(block.get("layer_type_quant_config")):
        raise _not_understood(plan.method, f"layer_type_quant_config {_names(block['layer_type_quant_config'])}")
    _lay_excluded(plan, block, "exclude", keeps_lm_head=False)
    cached = {_word(_mapping(_mapping(own).get("output_tensors")), "dtype") for own in kv.values()} - {None}
    return _kv_word(str(cached.pop())) if len(cached) == 1 else None


def _quark_format(weight: Mapping[str, object], inputs: Mapping[str, object], plan: _Plan) -> str:
    """Return the format of a Quark weight scheme; no scheme leaves the tensor as it was."""
    if not weight:
        return plan.plain
    dtype, scheme, group = _word(weight, "dtype"), _word(weight, "qscheme"), _group(weight, "group_size")
    match (dtype, scheme):
        case ("fp4", "per_group"):
            form = "mxfp4" if group in {None, 32} and _word(weight, "scale_format") == "e8m0" else ""
        case ("fp6_e2m3" | "fp6_e3m2", "per_group"):
            form = "mxfp6" if group in {None, 32} else ""
        case ("fp8_e4m3", "per_tensor"):
            form = "fp8"
        case ("fp8_e4m3", "per_channel"):
            form = "fp8_channel_fp32"
        case ("int8", "per_tensor" | "per_channel"):
            form = "int8"
        case ("int4" | "uint4", "per_group"):
            form = f"int4_g{group or 128}{'_asym' if dtype == 'uint4' else ''}"
        case _:
            form = ""
    if not form:
        raise _not_understood(
            "quark", f"weight dtype {shown(dtype)} with qscheme {shown(scheme)}, group_size {shown(group)}"
        )
    return form if inputs or form.startswith("int4") else f"{form}_a16"


def _read_eight_bit(_block: Mapping[str, object], _text: Mapping[str, object], plan: _Plan) -> str | None:
    """Weight-only int8 per output channel (EETQ, experts_int8 leaves all but experts alone)."""
    if plan.method == "experts_int8":
        plan.base = plan.plain
        plan.lay(_role(TensorRole.EXPERT, plan), "int8_a16")
    else:
        plan.base = "int8_a16"
    return None


_Reader = Callable[[Mapping[str, object], Mapping[str, object], _Plan], str | None]
_READERS: dict[str, _Reader] = {
    "fp8": _read_fp8,
    "finegrained_fp8": _read_fp8,
    "deepseek_v4_fp8": _read_fp8,
    "fbgemm_fp8": _read_fbgemm,
    "compressed-tensors": _read_compressed_tensors,
    "awq": _read_awq,
    "gptq": _read_gptq,
    "gptq_marlin": _read_gptq,
    "awq_marlin": _read_awq,
    "auto-round": _read_auto_round,
    "mxfp4": _read_mxfp4,
    "bitsandbytes": _read_bitsandbytes,
    "modelopt": _read_modelopt,
    "quark": _read_quark,
    "eetq": _read_eight_bit,
    "experts_int8": _read_eight_bit,
}


# Schemes and words ---------------------------------------------------------------------------------------------------


def _scheme(weights: Mapping[str, object], activations: Mapping[str, object], where: str) -> str:
    """Return the format of a compressed-tensors weight scheme, given what is said of the activations."""
    bits, kind, group = weights.get("num_bits"), weights.get("type", "int"), _group(weights, "group_size")
    strategy = _word(weights, "strategy") or ("group" if group else "tensor")
    form = None
    if kind == "float":
        form = _float_scheme(bits, strategy, group, weights)
    elif kind == "int":
        form = _integer_scheme(bits, strategy, group)
    width = activations.get("num_bits") if activations else _PLAIN_BITS
    if not form or width not in _ACTIVATION_BITS:
        given = f"weights of type {shown(kind)}, num_bits {shown(bits)}, strategy {shown(strategy)}"
        raise _not_understood(where, f"{given}, group_size {shown(group)}, activations of num_bits {shown(width)}")
    if kind != "float" and weights.get("symmetric") is False and form != "int8":
        form += "_asym"
    return form if weight_format(form).compute_bits == width else f"{form}_a{width}"


def _float_scheme(bits: object, strategy: str, group: int | None, weights: Mapping[str, object]) -> str | None:
    """Return the format of FP8, FP4 and MX weights, or None."""
    match (bits, strategy):
        case (8, "tensor"):
            return "fp8"
        case (8, "channel" | "token"):
            return "fp8_channel"
        case (8, "block"):
            return _block_format(_integers(weights.get("block_structure")) or (128, 128), ue8m0=False)
        case (8, "group" | "tensor_group"):
            return {32: "mxfp8"}.get(group or 0)
        case (4, "group" | "tensor_group"):
            return {16: "nvfp4", 32: "mxfp4"}.get(group or 0)
        case _:
            return None


def _integer_scheme(bits: object, strategy: str, group: int | None) -> str | None:
    """Return the format of integer weights, or None."""
    if not isinstance(bits, int) or isinstance(bits, bool) or not _MIN_BITS <= bits <= _MAX_BITS:
        return None
    match strategy:
        case "tensor" | "channel" | "token":
            return "int8" if bits == _MAX_BITS else f"int{bits}_g-1"
        case "group" if group:
            return f"int{bits}_g{group}"
        case _:
            return None


def _kv_scheme(value: object) -> str | None:
    """Return the KV-cache type of a ``kv_cache_scheme`` mapping; None where there is none."""
    scheme = _mapping(value)
    if not scheme:
        return None
    kind = scheme.get("type", "int")
    known = {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8", ("int", 4): "int4"}
    bits = scheme.get("num_bits")
    form = known.get((kind, bits)) if isinstance(bits, int) and isinstance(kind, str) else None
    if form is None:
        raise UnsupportedArchitecture(
            f"kv_cache_scheme num_bits {shown(bits)}, type {shown(scheme.get('type'))} is not understood",
            place=_PLACE,
            hint="known are 8 and 4 bits of type float or int",
        )
    return form


def _kv_word(word: str) -> str | None:
    """Return the KV-cache type of an algorithm name such as ``FP8`` or ``NVFP4``."""
    known = {"FP8": "fp8", "FP8_E4M3": "fp8", "FP8_E5M2": "fp8", "NVFP4": "nvfp4", "INT8": "int8", "NONE": None}
    if word.upper() not in known:
        raise UnsupportedArchitecture(
            f"KV-cache algorithm {shown(word)} is not understood", place=_PLACE, hint="known are FP8, NVFP4 and INT8"
        )
    return known[word.upper()]


def _block_format(size: tuple[int, ...], *, ue8m0: bool) -> str:
    """Return the block-scaled FP8 format of a [rows, columns] block."""
    if len(size) != _BLOCK_SIDES or not all(1 <= side < _MAX_SIDE for side in size):
        raise _not_understood("fp8", f"weight_block_size {shown('x'.join(str(side) for side in size[:4]))}")
    suffix = "_ue8m0" if ue8m0 else ""
    return f"fp8_block{suffix}" if size == (128, 128) else f"fp8_block_{size[0]}x{size[1]}{suffix}"


def _integer_format(family: str, bits: int, group: int | None) -> str:
    """Return ``awq`` or ``gptq`` for their common case, else the name that spells out bits and group."""
    if bits == _USUAL_BITS and group in {None, 128}:
        return family
    return f"{family}{'' if bits == _USUAL_BITS else bits}_g{group or 128}"


# Laying and compressing -----------------------------------------------------------------------------------------------


def _lay_excluded(plan: _Plan, block: Mapping[str, object], *keys: str, keeps_lm_head: bool = True) -> None:
    """Give the modules listed under ``keys`` the checkpoint's plain type."""
    patterns = [name for key in keys for name in _words(block.get(key))]
    if len(patterns) > _MAX_PATTERNS:
        raise _not_understood(plan.method, f"{len(patterns):,} module names")
    selection = plan.select(patterns)
    if keeps_lm_head:
        # These methods never touch embeddings and heads: no rule is needed for them.
        selection = {key: layers for key, layers in selection.items() if key[0] in LINEAR_ROLES}
    plan.lay(selection, plan.plain)


def _role(role: TensorRole, plan: _Plan) -> Selection:
    """Return all tensors of a role in all layers; no experts of a model without experts."""
    if role is TensorRole.EXPERT and not plan.has_experts:
        return {}
    layers = _every_layer(plan)
    return {(role, name): set(layers) for name in NAMES_OF_ROLE[role]} if layers else {}


def _every_layer(plan: _Plan) -> set[int]:
    return set(range(plan.num_layers + plan.num_mtp_layers))


def _quantization(plan: _Plan) -> WeightQuantization:
    """Return base and rules of a plan."""
    formats: dict[ModuleKey, dict[int, str]] = {}
    for selection, form in plan.overlays:
        for key, layers in selection.items():
            formats.setdefault(key, {}).update(dict.fromkeys(layers, form))
    rules = compressed_rules(
        formats, base=plan.base, plain=plan.plain, num_layers=plan.num_layers + plan.num_mtp_layers
    )
    return WeightQuantization(format=plan.base, rules=rules, method=plan.method)


def compressed_rules(
    formats: Mapping[ModuleKey, Mapping[int, str]], *, base: str, plain: str, num_layers: int
) -> tuple[WeightRule, ...]:
    """Return the fewest rules for ``formats`` (of each tensor, by layer): only what differs from what holds anyway.

    ``base`` holds for linear roles and ``plain`` for all others; a rule over all ``num_layers`` names no layers.
    """
    # (role, format, layers) -> names
    merged: dict[tuple[TensorRole, str, tuple[int, ...]], set[str]] = {}
    for (role, name), by_layer in formats.items():
        default = base if role in LINEAR_ROLES else plain
        grouped: dict[str, list[int]] = {}
        for layer, form in by_layer.items():
            if form != default:
                grouped.setdefault(form, []).append(layer)
        for form, members in grouped.items():
            merged.setdefault((role, form, tuple(sorted(members))), set()).add(name)
    shared: dict[tuple[tuple[str, ...], tuple[int, ...] | None, str], list[TensorRole]] = {}
    rules: list[WeightRule] = []
    for (role, form, where), names in merged.items():
        layers = None if where == (NO_LAYER,) or len(where) >= num_layers else where
        if role not in NAMES_OF_ROLE or names >= NAMES_OF_ROLE[role]:
            shared.setdefault(((), layers, form), []).append(role)
        else:
            rules.append(WeightRule(roles=(role,), names=tuple(sorted(names)), layers=layers, format=form))
    rules.extend(
        WeightRule(roles=tuple(roles), names=names, layers=layers, format=form)
        for (names, layers, form), roles in shared.items()
    )
    # A rule of the whole model is tested after those of single layers, so that order carries no meaning of its own.
    rules.sort(key=lambda rule: (rule.layers is None, not rule.names, rule.roles, rule.format))
    return tuple(rules)


# Reading loose mappings ----------------------------------------------------------------------------------------------


def _block(config: Mapping[str, object], sidecar: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return the quantization block: of the config, of a nested text config, or of the sidecar file."""
    places: list[Mapping[str, object]] = [config]
    places.extend(_mapping(config.get(key)) for key in _NESTED)
    places.extend(_mapping(place.get("text_config")) for place in places[1:])
    for place in places:
        for key in ("quantization_config", "compression_config"):
            stated = place.get(key)
            block = _mapping(stated)
            if block:
                return block
            if stated and not isinstance(stated, Mapping):
                raise UnsupportedArchitecture(
                    f"{key} is no object", place=key, hint="take it out of the config if it has no meaning"
                )
    if sidecar is None:
        return None
    inner = _mapping(sidecar.get("quantization")) or _mapping(sidecar.get("quantization_config")) or sidecar
    return {"quant_method": "modelopt", **inner} if inner else None


def _method(block: Mapping[str, object]) -> str:
    """Return the canonical method name of a block."""
    method = str(block.get("quant_method") or "").lower().strip()
    if not method:
        if "quant_algo" in block or "quantization" in block:
            method = "modelopt"
        elif "config_groups" in block:
            method = "compressed-tensors"
        elif block.get("load_in_4bit") or block.get("load_in_8bit"):
            method = "bitsandbytes"
    method = {"compressed_tensors": "compressed-tensors", "sparseml": "compressed-tensors"}.get(method, method)
    if method.startswith("modelopt"):
        method = "modelopt"
    if "auto-round" in method or "auto_round" in method:
        method = "auto-round"
    return method


def _text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the mapping that describes the decoder."""
    for key in _NESTED:
        inner = _mapping(config.get(key))
        if inner:
            return _mapping(inner.get("text_config")) or inner
    return config


def _not_understood(method: str, what: str) -> UnsupportedArchitecture:
    return UnsupportedArchitecture(
        f"quantization {method}: {what} is not understood",
        place=_PLACE,
        hint="take the block out of the config and state --weights to override it",
    )


def _names_later_expert(pattern: str) -> bool:
    """Return whether a plain name belongs to an expert other than the first, which stands for all."""
    return ".experts." in f".{pattern}"


def _mapping(value: object) -> Mapping[str, object]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, (list, tuple)) else ()


def _word(block: Mapping[str, object], *keys: str) -> str | None:
    for key in keys:
        value = block.get(key)
        if isinstance(value, str) and value:
            return value.removeprefix("torch.")
    return None


def _integers(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [
            int(part) for part in value.lower().split("x") if part.isdecimal() and len(part) <= len(str(_MAX_SIDE))
        ]
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))


def _has_experts(text: Mapping[str, object]) -> bool:
    """Return whether a config is of a mixture of experts."""
    return any(
        isinstance(value := section.get(key), (int, list, tuple)) and bool(value)
        for section in (text, _mapping(text.get("ffn_config")))
        for key in EXPERTS
    )


def _count(block: Mapping[str, object], keys: Iterable[str]) -> int:
    """Return a layer count, 0 when absent or absurd: the architecture adapter is the one that complains."""
    for key in keys:
        value = block.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_LAYER_COUNT:
            return value
    return 0


def _bits(block: Mapping[str, object], plan: _Plan, *keys: str) -> int:
    for key in keys:
        value = block.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and _MIN_BITS <= value <= _MAX_BITS:
            return value
        if value is not None:
            raise _not_understood(plan.method, f"{key} {shown(value)}")
    return _USUAL_BITS


def _group(block: Mapping[str, object], *keys: str) -> int | None:
    """Return a group size; -1 is the whole channel, None not stated."""
    for key in keys:
        value = block.get(key)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and (value == -1 or 1 <= value <= _MAX_GROUP):
            return value
        raise _not_understood("group", f"{key} {shown(value)}")
    return None


def _names(block: object) -> str:
    """Return the keys of a mapping as a short list."""
    keys = sorted(str(key) for key in block) if isinstance(block, Mapping) else []
    return ", ".join(keys[:_LISTED_KEYS]) + (" ..." if len(keys) > _LISTED_KEYS else "") if keys else "none"

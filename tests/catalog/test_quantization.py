from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from infcalc.catalog import module_names
from infcalc.catalog.architectures import ADAPTERS
from infcalc.catalog.gguf_mixes import MIXES, use_more_bits
from infcalc.catalog.huggingface import from_config
from infcalc.catalog.module_dialects import dialect
from infcalc.catalog.module_names import NO_LAYER, select
from infcalc.catalog.quantization import read_quantization, runtime_quantization
from infcalc.errors import FileProblem, UnsupportedArchitecture, UsageError
from infcalc.lowering.tensors import Tensor, inventory, parameters
from infcalc.spec.weights import TensorRole
from infcalc.units import GIB
from tests.catalog.configs import DEEPSEEK, LLAMA_8B, LLAMA_405B, QWEN_MOE, SHARED_CONFIGS, Config, published

needs_shared = pytest.mark.skipif(not SHARED_CONFIGS.is_dir(), reason="published configs are not here")

INT4_GROUP = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


def stored(config: Config, block: Config | None = None, *, sidecar: Config | None = None) -> tuple[Tensor, ...]:
    """Return the inventory of a config with a quantization block."""
    whole = config if block is None else config | {"quantization_config": block}
    reading = read_quantization(whole, sidecar=sidecar)
    model = from_config(whole, name="t", quantization=reading.quantization, kv_dtype=reading.kv_dtype)
    return inventory(model, with_mtp=True)


def formats(tensors: tuple[Tensor, ...], name: str) -> dict[str, tuple[int, ...]]:
    """Return the layers of a tensor by format."""
    found: dict[str, tuple[int, ...]] = {}
    for tensor in tensors:
        if tensor.name == name:
            found[tensor.format.name] = found.get(tensor.format.name, ()) + tensor.layers
    return {form: tuple(sorted(layers)) for form, layers in found.items()}


def only(tensors: tuple[Tensor, ...], name: str) -> str:
    """Return the one format of a tensor."""
    (form,) = formats(tensors, name)
    return form


def total_bytes(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.bytes_total for tensor in tensors)


def test_no_block_is_no_quantization() -> None:
    reading = read_quantization(LLAMA_8B)
    assert reading.quantization is None
    assert reading.kv_dtype is None


# What each method covers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "form"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fp8", "weight_block_size": [64, 128]}, "fp8_block_64x128"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8_channel_fp32"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "awq"),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "awq_g64"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq8_g-1"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "gptq"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": "auto_round:auto_awq"}, "awq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        (
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
            "nf4_dq",
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8_bnb"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4"),
        ({"quant_algo": "W4A8_AWQ", "group_size": 64}, "int4_g64_a8"),
        ({"quant_method": "eetq"}, "int8_a16"),
    ],
)
def test_a_block_covers_linear_layers_only(block: Config, form: str) -> None:
    tensors = stored(LLAMA_8B, block)
    assert only(tensors, "q") == only(tensors, "down") == form
    assert only(tensors, "embedding") == only(tensors, "norm") == "bf16"


@pytest.mark.parametrize(
    ("weights", "activations", "form"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"num_bits": 8}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, {"num_bits": 8}, "fp8_channel"),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, None, "fp8_channel_a16"),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "128x128"},
            {"num_bits": 8},
            "fp8_block",
        ),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, {"num_bits": 4}, "nvfp4"),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, None, "nvfp4_a16"),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, None, "mxfp4_a16"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8}, "int8"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, None, "int8_a16"),
        (INT4_GROUP, None, "int4_g32"),
        (INT4_GROUP | {"symmetric": False}, None, "int4_g32_asym"),
        ({"num_bits": 4, "type": "int", "strategy": "channel"}, None, "int4_g-1"),
    ],
)
def test_compressed_tensors_schemes(weights: Config, activations: Config | None, form: str) -> None:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    block = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    tensors = stored(LLAMA_8B, block)
    assert only(tensors, "gate") == form
    assert only(tensors, "lm_head") == "bf16"


def test_compressed_tensors_covers_a_head_that_is_not_ignored() -> None:
    block = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4_GROUP}}, "ignore": []}
    assert only(stored(LLAMA_8B, block), "lm_head") == "int4_g32"


def test_groups_with_module_targets_and_no_class_cover_those_modules_only() -> None:
    groups = {
        "a": {"targets": ["re:.*mlp.experts.*"], "weights": INT4_GROUP},
        "b": {
            "targets": ["re:.*self_attn.*"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
            "input_activations": {"num_bits": 8},
        },
    }
    block = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["re:.*layers.1[.].*", "lm_head"]}
    tensors = stored(QWEN_MOE, block)
    assert formats(tensors, "experts.down") == {"int4_g32": (0, 2, 3), "bf16": (1,)}
    assert formats(tensors, "o") == {"fp8_channel": (0, 2, 3), "bf16": (1,)}
    assert only(tensors, "router") == "bf16"


def test_gpt_oss_quantizes_experts_only() -> None:
    tensors = stored(QWEN_MOE, {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})
    assert only(tensors, "experts.gate") == "mxfp4"
    assert only(tensors, "q") == only(tensors, "lm_head") == "bf16"


def test_a_plain_name_matches_whole_components() -> None:
    # `gate` is the router; it is not `gate_proj`.
    block = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["gate", "lm_head"]}
    tensors = stored(QWEN_MOE, block)
    assert only(tensors, "experts.gate") == "fp8_block"


def test_single_layers_are_left_out_by_name() -> None:
    names = ["model.layers.0.self_attn", "model.layers.3.mlp.down_proj", "model.layers.0.input_layernorm"]
    tensors = stored(LLAMA_8B, {"quant_method": "awq", "bits": 4, "modules_to_not_convert": names})
    assert formats(tensors, "q")["bf16"] == (0,)
    assert formats(tensors, "down")["bf16"] == (3,)
    assert only(tensors, "up") == "awq"


def test_gptq_dynamic_overrides_and_exclusions() -> None:
    block = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "lm_head": True,
        "dynamic": {r"+:.*\.2\..*down.*": {"bits": 8, "group_size": 64}, r"-:.*\.3\.self_attn.*": {}},
    }
    tensors = stored(QWEN_MOE, block)
    assert formats(tensors, "experts.down") == {"gptq": (0, 1, 3), "gptq8_g64": (2,)}
    assert formats(tensors, "v") == {"gptq": (0, 1, 2), "bf16": (3,)}
    assert only(tensors, "lm_head") == "gptq"


def test_gptq_may_name_what_it_covers() -> None:
    block = {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["mlp.up_proj", "mlp.gate_proj"]]}
    tensors = stored(LLAMA_8B, block)
    assert (only(tensors, "up"), only(tensors, "down"), only(tensors, "q")) == ("gptq", "bf16", "bf16")


def test_modelopt_sidecar_with_wildcards() -> None:
    sidecar = {
        "producer": {"name": "modelopt"},
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "group_size": 16,
            "exclude_modules": ["lm_head", "*self_attn*", "model.layers.4*"],
        },
    }
    tensors = stored(DEEPSEEK, sidecar=sidecar)
    assert formats(tensors, "experts.up") == {"nvfp4": (1, 2, 3)}
    assert only(tensors, "mtp.experts.up") == "bf16"
    assert only(tensors, "kv_b") == "bf16"
    assert read_quantization(DEEPSEEK, sidecar=sidecar).kv_dtype == "fp8"


def test_modelopt_mixed_precision_names_each_module() -> None:
    layers = {
        "model.layers.0.mlp.down_proj": {"quant_algo": "FP8"},
        "model.layers.1.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16},
    }
    sidecar = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}
    tensors = stored(LLAMA_8B | {"num_hidden_layers": 3}, sidecar=sidecar)
    assert formats(tensors, "down") == {"fp8": (0,), "nvfp4": (1,), "bf16": (2,)}
    assert only(tensors, "q") == "bf16"


def test_the_config_wins_over_the_sidecar() -> None:
    config = LLAMA_8B | {"quantization_config": {"quant_method": "awq", "bits": 4}}
    sidecar = {"quantization": {"quant_algo": "FP8"}}
    reading = read_quantization(config, sidecar=sidecar)
    assert reading.quantization is not None
    assert reading.quantization.method == "awq"


def test_quark_overrides_by_pattern_and_kv_cache() -> None:
    weight = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    own = {"weight": weight, "input_tensors": {"dtype": "fp4"}, "output_tensors": {"dtype": "fp8_e4m3"}}
    block = {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight, "input_tensors": {"dtype": "fp4"}},
        "layer_quant_config": {"*k_proj": own, "*v_proj": own, "*down_proj": {"weight": None}},
        "export": {"kv_cache_group": ["*k_proj", "*v_proj"]},
        "exclude": ["lm_head"],
    }
    tensors = stored(LLAMA_8B, block)
    assert (only(tensors, "k"), only(tensors, "down"), only(tensors, "lm_head")) == ("mxfp4", "bf16", "bf16")
    assert read_quantization(LLAMA_8B | {"quantization_config": block}).kv_dtype == "fp8"


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "word"),
    [
        ({"quant_method": "aqlm", "in_group_size": 8}, "aqlm"),
        ({"mystery": 1}, "mystery"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "awq", "bits": 17}, "17"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "many"}, "many"),
        ({"quant_method": "modelopt", "quant_algo": "W1A1"}, "W1A1"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        (
            {"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 5, "type": "float"}}}},
            "num_bits 5",
        ),
        ({"config_groups": {"g": {"weights": INT4_GROUP}}, "kv_cache_scheme": {"num_bits": 3, "type": "int"}}, "3"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(block: Config, word: str) -> None:
    with pytest.raises(UnsupportedArchitecture) as caught:
        read_quantization(LLAMA_8B | {"quantization_config": block})
    assert word in str(caught.value)


INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}


@pytest.mark.parametrize(
    ("config", "block", "word"),
    [
        (LLAMA_8B, {"quant_method": "quark", "global_quant_config": {}}, "quantizes nothing"),
        (LLAMA_8B, {"quant_method": "quark"}, "quantizes nothing"),
        (LLAMA_8B, {"quant_method": "mxfp4"}, "quantizes nothing"),
        (LLAMA_8B, {"quant_method": "experts_int8"}, "quantizes nothing"),
        (LLAMA_8B, {"quant_method": "modelopt", "quant_algo": None}, "quantizes nothing"),
        (LLAMA_8B, {"config_groups": {"g": {"targets": ["Linear"]}}}, "quantizes nothing"),
        (LLAMA_8B, {"config_groups": {"g": {"weights": INT8 | {"type": "posit"}}}}, "posit"),
        (
            LLAMA_8B,
            {"config_groups": {"g": {"weights": INT8}}, "kv_cache_scheme": {"num_bits": 8, "type": "posit"}},
            "posit",
        ),
        (LLAMA_8B, {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "group_size 32"),
        (LLAMA_8B, {"quant_method": "modelopt", "quant_algo": "MXFP8", "group_size": 16}, "group_size 16"),
        (LLAMA_8B, {"quant_method": "fp8", "fmt": "e3m4"}, "e3m4"),
        (LLAMA_8B, {"quant_method": "fp8", "scale_fmt": "e5m3"}, "e5m3"),
        (LLAMA_8B, {"quant_method": "fp8", "activation_scheme": "guess"}, "guess"),
        (LLAMA_8B, {"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        (LLAMA_8B, {"quant_method": "fp8", "weight_block_size": "wide"}, "weight_block_size"),
        (LLAMA_8B, [1], "no object"),
        (LLAMA_8B, "fp8", "no object"),
    ],
)
def test_no_block_is_silently_read_as_sixteen_bits(config: Config, block: object, word: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=word) as caught:
        read_quantization(config | {"quantization_config": block})
    assert caught.value.exit_code == 6


def test_a_block_may_quantize_the_cache_alone() -> None:
    block = {"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"}
    assert read_quantization(LLAMA_8B | {"quantization_config": block}).kv_dtype == "fp8"


def test_the_older_name_of_the_block_is_read_from_end_to_end() -> None:
    block = {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": INT8}}}
    config = LLAMA_8B | {"compression_config": block}
    assert only(stored(config), "q") == "int8_a16"


def test_auto_round_states_groups_by_module() -> None:
    own = {"model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 64}}
    tensors = stored(LLAMA_8B, {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": own})
    assert formats(tensors, "down")["gptq8_g64"] == (0,)


def test_a_broken_expression_is_a_file_problem() -> None:
    block = {"config_groups": {"g": {"weights": INT4_GROUP}}, "ignore": ["re:(("]}
    with pytest.raises(FileProblem, match=r"\(\("):
        read_quantization(LLAMA_8B | {"quantization_config": block})


def test_names_that_mean_nothing_are_noted_and_towers_are_not() -> None:
    names = [
        "model.layers.0.self_attn.mystery",
        "vision_tower.blocks.0.attn",
        "model.layers.0.post_attention_layernorm",
    ]
    reading = read_quantization(LLAMA_8B | {"quantization_config": {"quant_method": "fp8", "ignored_layers": names}})
    assert len(reading.notes) == 1
    assert "mystery" in reading.notes[0]


# Module names --------------------------------------------------------------------------------------------------------


def test_select_by_name_glob_and_expression_agree() -> None:
    key = (TensorRole.ATTENTION, "kv_a")
    by_name = select("model.layers.2.self_attn.kv_a_proj_with_mqa", num_layers=4)
    by_glob = select("*.layers.2.*kv_a_proj*", num_layers=4)
    by_expression = select(r"re:.*layers\.2\..*kv_a.*", num_layers=4)
    assert by_name[key] == by_glob[key] == by_expression[key] == {2}


def test_select_outside_layers_and_beyond_them() -> None:
    assert select("lm_head", num_layers=2) == {(TensorRole.LM_HEAD, "lm_head"): {NO_LAYER}}
    assert select("model.layers.7.mlp", num_layers=2) == {}
    # A layer after the last is an MTP layer.
    assert select("model.layers.2.mlp.up_proj", num_layers=2, num_mtp_layers=1)[(TensorRole.FEED_FORWARD, "up")] == {2}
    assert select("mtp.layers.0.mlp.up_proj", num_layers=2, num_mtp_layers=1)[(TensorRole.FEED_FORWARD, "up")] == {2}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}


def test_an_expression_takes_only_the_parts_it_names() -> None:
    tensors = stored(LLAMA_8B, GPTQ | {"dynamic": {"-:.*gate.*": {}}})
    assert (only(tensors, "gate"), only(tensors, "up")) == ("bf16", "gptq")
    tensors = stored(LLAMA_8B, {"quant_algo": "NVFP4", "exclude_modules": ["*gate*"]})
    assert (only(tensors, "gate"), only(tensors, "up")) == ("bf16", "nvfp4")
    groups = {"g": {"targets": ["Linear"], "weights": INT4_GROUP}}
    tensors = stored(LLAMA_8B, {"config_groups": groups, "ignore": ["re:.*self_attn.q.*"]})
    assert [only(tensors, name) for name in "qkvo"] == ["bf16", "int4_g32", "int4_g32", "int4_g32"]


def test_fused_names_stand_for_their_parts_when_no_part_is_named() -> None:
    groups = {"g": {"targets": ["Linear"], "weights": INT4_GROUP}}
    tensors = stored(LLAMA_8B, {"config_groups": groups, "ignore": [r"re:.*(gate_up_proj|qkv_proj)$"]})
    assert [only(tensors, name) for name in ("q", "v", "o", "gate", "up", "down")] == [
        "bf16",
        "bf16",
        "int4_g32",
        "bf16",
        "bf16",
        "int4_g32",
    ]


def test_a_family_that_fuses_its_matrices_has_no_parts_to_name() -> None:
    phi = LLAMA_8B | {"model_type": "phi3"}
    tensors = stored(phi, GPTQ | {"dynamic": {"-:.*gate.*": {}}})
    assert only(tensors, "gate") == only(tensors, "up") == "bf16"
    tensors = stored(phi, GPTQ | {"dynamic": {"-:.*q_proj.*": {}}})
    assert only(tensors, "q") == only(tensors, "k") == "gptq"


@pytest.mark.parametrize(
    ("family", "pattern", "names"),
    [
        ("llama", "*dense*", set()),
        ("llama", "*c_proj*", set()),
        ("llama", "*block_sparse_moe*", set()),
        ("mixtral", "*mlp.experts*", set()),
        ("mixtral", "*w1*", {"gate"}),
        ("gpt_oss", "*experts.gate_up_proj", {"gate", "up"}),
        ("falcon", "*query_key_value", {"q", "k", "v"}),
        ("gpt_neox", r"re:gpt_neox\.layers\.\d+\.mlp\.dense_4h_to_h", {"down"}),
        ("opt", "*fc1", {"up"}),
        ("internlm2", "*wqkv*", {"q", "k", "v"}),
        ("nemotron_h", "backbone.layers.*.mixer.in_proj", {"in_proj"}),
        ("deepseek_v3", r"re:.*kv_b.*", {"kv_b"}),
        ("gemma3_text", "model.language_model.layers.*.self_attn.q_proj", {"q"}),
        ("gemma3_text", r"re:.*language_model.*self_attn\.k_proj", {"k"}),
    ],
)
def test_patterns_meet_the_names_of_the_family(family: str, pattern: str, names: set[str]) -> None:
    assert {name for _, name in select(pattern, num_layers=3, family=family)} == names


@pytest.mark.parametrize("family", ADAPTERS)
def test_every_family_has_names_for_attention_or_recurrence(family: str) -> None:
    keys = {key for keys in dialect(family).stored.values() for key in keys}
    assert {role for role, _ in keys} & {TensorRole.ATTENTION, TensorRole.RECURRENT}


class Counting:
    """An expression that counts how often it is tried."""

    tries = 0

    def __init__(self, expression: str, place: str) -> None:
        del place
        self.expression = re.compile(expression)

    def match(self, name: str) -> object:
        """Try it from the start."""
        Counting.tries += 1
        return self.expression.match(name)

    def fullmatch(self, name: str) -> object:
        """Try it on the whole name."""
        Counting.tries += 1
        return self.expression.fullmatch(name)


@pytest.mark.parametrize(
    ("pattern", "num_layers", "layers"),
    [
        ("*self_attn*", 1, range(100)),
        (r"re:.*self_attn\.(q|k)_proj", 1, range(100)),
        ("model.layers.37.*", 1, [37]),
        ("*.layers.37.mlp*", 1, [37]),
        ("model.layers.4*", 11, [4, *range(40, 50)]),
        (r"re:.*layers\.37\..*_proj", 1, [37]),
        (r"re:model\.layers\.4", 11, [4, *range(40, 50)]),
        (r"re:.*layers\.(3|7)\..*", 100, [3, 7]),
        (r"re:.*layers\.4[0-9]\..*", 100, range(40, 50)),
        (r"re:.*layers\.37?\..*", 100, [3, 37]),
        (r"re:.*layers\.3\.mlp.*|.*layers\.5\.mlp.*", 100, [3, 5]),
        ("model.layers.[12].*", 100, [1, 2]),
        ("model.layers.4?.*", 10, range(40, 50)),
    ],
)
def test_a_pattern_is_tried_only_on_layers_it_can_name(
    monkeypatch: pytest.MonkeyPatch, pattern: str, num_layers: int, layers: Iterable[int]
) -> None:
    monkeypatch.setattr(module_names, "_compiled", Counting)
    Counting.tries = 0
    found = select(pattern, num_layers=100)
    assert set().union(*found.values()) - {NO_LAYER} == set(layers)
    names = len(dialect("").stored) + len(dialect("").fused)
    assert Counting.tries <= len(module_names.OUTSIDE) + (num_layers + 1) * names


@pytest.mark.parametrize(
    "expression",
    [
        "(.*)*(.*)*(.*)*z$",
        "(a+)+$",
        "(a|aa)+$",
        r"(\w+\s?)*$",
        ".*.*.*.*z",
        "(.)*(.)*(.)*z",
        "[a-z]*[a-z_]*[a-z.]*z",
        ".*e.*e.*e.*z",
        ".*(foo)?.*(foo)?.*z",
        ".*(foo|).*(foo|).*z",
        ".*ab.*cd.*ef.*gh.*ij.*kl.*mn.*z",
        ".{0,99}.{0,99}.{0,99}z",
    ],
)
def test_an_expression_that_could_take_for_ever_is_refused(expression: str) -> None:
    for block in (
        GPTQ | {"dynamic": {f"-:{expression}": {}}},
        {"config_groups": {"g": {"weights": INT4_GROUP}}, "ignore": [f"re:{expression}"]},
    ):
        with pytest.raises(FileProblem, match="for ever"):
            read_quantization(LLAMA_8B | {"quantization_config": block})


def test_a_glob_of_many_stars_is_matched_without_going_back() -> None:
    assert select("*e*" * 40 + "z", num_layers=2) == {}
    assert select("*layers*.1*mlp*up*", num_layers=2)[(TensorRole.FEED_FORWARD, "up")] == {1}


def test_the_number_of_expressions_is_bounded() -> None:
    names = [rf"re:.*layers\.\d\.x{index}" for index in range(5000)]
    with pytest.raises(FileProblem, match="too many module patterns"):
        read_quantization(LLAMA_8B | {"quantization_config": {"quant_method": "fp8", "ignored_layers": names}})


# Published figures ---------------------------------------------------------------------------------------------------


def test_weights_of_llama_8b_at_run_time() -> None:
    # UC-013, measured by vLLM 0.19: bf16 14.99, float32 29.98, runtime fp8 8.49 GiB.
    # https://github.com/llm-d-incubation/llm-d-planner/blob/main/accuracy/results/v0.19.0/accuracy_report.md
    model = from_config(LLAMA_8B, name="llama")
    for word, gib, tolerance in (("bf16", 14.99, 0.01), ("fp32", 29.98, 0.01), ("fp8", 8.49, 0.02)):
        tensors = inventory(model, runtime_quantization(word, model))
        assert total_bytes(tensors) / GIB == pytest.approx(gib, rel=tolerance), word


@needs_shared
def test_kimi_k25_leaves_its_cache_alone() -> None:
    # UC-028: int4 weights without kv_cache_scheme say nothing about the KV cache. https://github.com/alvarobartt/hf-mem/pull/54
    config = published("moonshotai__Kimi-K2.5.json")
    assert config is not None
    assert read_quantization(config).kv_dtype is None
    tensors = stored(config)
    assert only(tensors, "experts.up") == "int4_g32"
    assert only(tensors, "kv_a") == only(tensors, "shared.down") == only(tensors, "gate") == "bf16"


@needs_shared
def test_the_bytes_of_deepseek_v3_are_those_of_its_files() -> None:
    # An independent count of the decoder's tensors, in which the score corrections of the 58 routers are float32.
    config = published("deepseek-ai__DeepSeek-V3.json")
    assert config is not None
    model = from_config(config, name="t", quantization=read_quantization(config).quantization)
    assert total_bytes(inventory(model)) == 673_150_611_808


def test_the_official_405b_fp8_checkpoint() -> None:
    # UC-072, measured: 57.75 GiB on each of 8 GPUs; only feed-forward matrices of inner layers are FP8.
    # https://github.com/vllm-project/vllm/issues/6746
    names = ["lm_head"]
    for layer in range(126):
        names += [f"model.layers.{layer}.self_attn.{part}_proj" for part in "qkvo"]
    for layer in (0, 125):
        names += [f"model.layers.{layer}.mlp.{part}_proj" for part in ("gate", "up", "down")]
    tensors = stored(LLAMA_405B, {"quant_method": "fbgemm_fp8", "modules_to_not_convert": names})
    assert total_bytes(tensors) / 8 / GIB == pytest.approx(57.75, rel=0.03)
    assert formats(tensors, "up")["bf16"] == (0, 125)


@needs_shared
@pytest.mark.parametrize(
    ("file", "gigabytes", "tolerance"),
    [
        # Sizes of the files on the hub (decimal gigabytes), vision towers and drafts apart.
        ("openai__gpt-oss-120b.json", 65.25, 0.01),
        ("openai__gpt-oss-20b.json", 13.76, 0.01),
        ("derived/Qwen__Qwen2.5-7B-Instruct-AWQ.json", 5.57, 0.01),
        ("derived/TheBloke__Llama-2-7B-Chat-GPTQ.json", 3.90, 0.01),
        ("deepseek-ai__DeepSeek-V3.json", 688.6, 0.01),
    ],
)
def test_bytes_of_published_checkpoints(file: str, gigabytes: float, tolerance: float) -> None:
    config = published(file)
    assert config is not None
    assert total_bytes(stored(config)) / 1e9 == pytest.approx(gigabytes, rel=tolerance)


@needs_shared
def test_every_published_block_is_read() -> None:
    read = 0
    for path in sorted(SHARED_CONFIGS.rglob("*.json")):
        if path.name.endswith("hf_quant_config.json"):
            continue
        config = published(str(path.relative_to(SHARED_CONFIGS)))
        assert config is not None
        reading = read_quantization(config)
        assert reading.notes == ()
        read += reading.quantization is not None
    assert read >= 14


# Precision words -----------------------------------------------------------------------------------------------------


def test_runtime_words_keep_the_checkpoint_s_own_rules() -> None:
    reading = read_quantization(QWEN_MOE | {"quantization_config": {"quant_method": "mxfp4"}})
    model = from_config(QWEN_MOE, name="t", quantization=reading.quantization)
    assert runtime_quantization("mxfp4", model) is model.quantization
    assert runtime_quantization("bf16", model).format == "bf16"


@pytest.mark.parametrize(
    ("block", "word", "kept"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", True),
        ({"config_groups": {"g": {"weights": INT4_GROUP}}, "ignore": ["re:.*self_attn.*"]}, "int4", True),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq", True),
        ({"quant_method": "awq", "bits": 4}, "fp8", False),
        ({"quant_method": "mxfp4"}, "bf16", False),
        ({"quant_method": "mxfp4"}, "q4_k_m", False),
    ],
)
def test_a_word_of_the_checkpoint_s_own_family_keeps_its_rules(block: Config, word: str, kept: bool) -> None:
    quantization = read_quantization(QWEN_MOE | {"quantization_config": block}).quantization
    model = from_config(QWEN_MOE, name="t", quantization=quantization)
    assert (runtime_quantization(word, model) is quantization) is kept


def test_an_unknown_word_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="int44"):
        runtime_quantization("int44", from_config(LLAMA_8B, name="t"))


@pytest.mark.parametrize(
    ("word", "gib"),
    [
        # https://github.com/ggml-org/llama.cpp/blob/master/tools/quantize/README.md (Llama 3.1 8B), read 2026-11
        ("q2_k", 2.95),
        ("q3_k_s", 3.41),
        ("q3_k_l", 4.02),
        ("q4_k_s", 4.36),
        ("q4_k_m", 4.58),
        ("q5_k_s", 5.21),
        ("q5_k_m", 5.33),
        ("q6_k", 6.14),
        ("q8_0", 7.95),
        ("iq4_xs", 4.17),
    ],
)
def test_mixes_lie_near_the_published_sizes(word: str, gib: float) -> None:
    model = from_config(LLAMA_8B, name="t")
    mix = runtime_quantization(word, model)
    assert "approximate" in mix.method
    assert total_bytes(inventory(model, mix)) / GIB == pytest.approx(gib, rel=0.02)


def test_every_mix_has_known_formats() -> None:
    for config in (LLAMA_8B, QWEN_MOE):
        model = from_config(config, name="t")
        plain = parameters(inventory(model)).total
        for word in MIXES:
            tensors = inventory(model, runtime_quantization(word, model))
            assert parameters(tensors).total == plain
            assert total_bytes(tensors) < 2.01 * plain


def test_more_bits_at_the_ends_and_every_third_layer() -> None:
    wide = [layer for layer in range(32) if use_more_bits(layer, 32)]
    assert wide == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]

"""The house rules that no linter knows: numbers name their unit, rooms keep to their imports, tests can fail."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import infcalc

PACKAGE = Path(infcalc.__file__).parent
TESTS = Path(__file__).parents[1]


@cache
def modules() -> tuple[ModuleType, ...]:
    found = pkgutil.walk_packages(infcalc.__path__, "infcalc.")
    return tuple(importlib.import_module(module.name) for module in found if not module.name.endswith("__main__"))


@cache
def dataclasses_of_the_package() -> tuple[type, ...]:
    return tuple(
        value
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and "__dataclass_fields__" in vars(value)
    )


# A number names its unit

UNIT = re.compile(
    r"""
    ^num_\w+$                                        # a count
    | (^|_)(bytes|bits|s|ps|tokens|flop|watt|usd|fraction)(_low|_high)?$
    | (_bytes|_flop|_tokens|_usd)?_per_(s|hour|month|byte|kwh)(_low|_high)?$
    | (^|_)(bytes|tokens|ps)_per_(token|round|request|entry|sequence)(_per_gpu)?(_low|_high)?$
    | _bytes_(per_gpu|cluster)$                      # bytes, of which part
    | (^|_)parameters$                               # a count
    """,
    re.VERBOSE,
)


def words(text: str) -> list[str]:
    return text.split()


BARE = {
    **dict.fromkeys(
        words(
            "null_blocks recurrent_pages in_flight_steps kv_blocks kv_blocks_low kv_blocks_high sequence_blocks cases "
            "skipped predicted_so"
        ),
        "a count of what it names",
    ),
    **dict.fromkeys(
        words("latent_multiple expert_input_multiple expert_inner_multiple lora_rank lora_ranks worst"),
        "elements, a rank of matrices, or the unit of another field",
    ),
    **dict.fromkeys(
        words(
            "rows columns copies heads layers draft_layers items elements sequences sequences_low sequences_high "
            "sequences_with sequences_without sequences_forgone"
        ),
        "a count of what it names",
    ),
    **dict.fromkeys(
        words("active_copies embedding_copies conv_elements state_elements group_elements experts_per_token"),
        "a count of what it names",
    ),
    **dict.fromkeys(
        words("group_rows group_columns sampled_positions array_items lines stage exit_code version shape"),
        "a count, a position or a code",
    ),
    **dict.fromkeys(words("total active active_without_embedding embedding lm_head"), "counts of parameters"),
    **dict.fromkeys(
        words("batch max_batch breakeven_batch max_num_seqs max_batch_size max_running_requests concurrency"),
        "a count of sequences, the field's word",
    ),
    **dict.fromkeys(
        words(
            "requests requests_low requests_high requests_p95 users users_low users_high users_asked sequences_needed"
        ),
        "a count of what it names",
    ),
    **dict.fromkeys(
        words(
            "rejected preempted peak_sequences mean_sequences offered_sequences cut_requests sharing_requests prefixes "
            "evictions evicted copies_on_write prompt_blocks_without prompt_blocks_with max_entries tight_entries"
        ),
        "a count of what it names",
    ),
    **dict.fromkeys(words("sequence_steps"), "a count, summed over steps"),
    **dict.fromkeys(words("prompt_scatter"), "a squared coefficient of variation"),
    **dict.fromkeys(words("correlation"), "from -1 to 1"),
    **dict.fromkeys(words("held_token_steps live_token_steps"), "tokens, summed over steps"),
    **dict.fromkeys(words("reserved_token_steps free_token_steps scattered_token_steps"), "tokens, summed over steps"),
    **dict.fromkeys(words("first_step"), "which step, not how many"),
    **dict.fromkeys(words("prefix answer found"), "which prefix; tokens themselves; pairs of tokens"),
    **dict.fromkeys(words("size"), "in entries or tokens, by the field beside it"),
    **dict.fromkeys(words("bytes_without bytes_with bytes_with_full_blocks"), "bytes, by the contract's names"),
    **dict.fromkeys(words("tp pp dp ep dcp max_domain prefill_tp decode_tp"), "a count of GPUs, the field's word"),
    **dict.fromkeys(
        words(
            "head_dim value_head_dim key_dim value_dim latent_dim "
            "qk_nope_head_dim qk_rope_head_dim rope_dim entry_dim embedding_dim "
            "expert_input_dim hidden_size vocab_size draft_vocab_size kv_lora_rank q_lora_rank query_rank "
            "width expert_width shared_width"
        ),
        "a dimension in elements, by its name in every config.json",
    ),
    **dict.fromkeys(
        words(
            "cost_ratio verify_ratio fixed_ratio operations_ratio operations_increase "
            "throughput_factor gqa_saving_factor gain_over_fp16 "
            "bandwidth_factor compute_factor link_factor message_factor step_factor front_end_factor "
            "gain_over_fp16_nominal compression "
            "speedup speedup_low speedup_high sampler_logit_copies sampler_high_logit_copies hidden_copies "
            "moe_hidden_copies state_pool_ratio "
            "reduced_hidden_copies stream_copies sampler_hidden_copies split_gemm_copies absorbed_latent_copies "
            "max_concurrency max_concurrency_low max_concurrency_high"
        ),
        "a ratio of two equal units",
    ),
    **dict.fromkeys(
        words("acceptance acceptance_low acceptance_high breakeven_acceptance alpha rates survival_rates"),
        "a probability, the field's word",
    ),
    "bits_per_element": "bits, of each of them",
    "pue": "a ratio of two equal units, the field's word",
    **dict.fromkeys(words("run outliers folds"), "which of them: positions"),
    **dict.fromkeys(words("factor factor_low factor_high"), "a ratio of two equal units"),
    "levels": "in the unit of the quantity beside it",
    "tree_width": "tokens of each sequence in a pass of its drafter",
    "kv_bytes_per_token_bf16": "bytes per token, and at which precision",
    **dict.fromkeys(words("since until least_capability below_capability"), "versions"),
    **dict.fromkeys(
        words("block_ids block_table source_block target_block pages evicted_pages"), "which block, not how many"
    ),
    **dict.fromkeys(words("layer sequence_id released seed ends"), "which one, not how many"),
    "log_deviation": "of a logarithm, which has no unit",
    **dict.fromkeys(
        words("cv think_cv burstiness_cv burstiness dispersion count_dispersion"), "deviation over mean, or the like"
    ),
    **dict.fromkeys(
        words("tail_index peak_ratio skew speedup speedup_e2e speedup_throughput"),
        "an exponent, or a ratio of two equal units",
    ),
    **dict.fromkeys(words("mean p50 p90 p99 min max mean_low mean_high"), "in the unit of the quantity they sum up"),
    **dict.fromkeys(words("sessions left_out"), "a count of what it names"),
    **dict.fromkeys(
        words("requests completed aborted unfinished preemptions steps"), "a count of what it names, by the contract"
    ),
    **dict.fromkeys(words("replica session serial reasons"), "which one, not how many; texts by request"),
    **dict.fromkeys(
        words("p95 highest_within_slo drafting_pays_up_to"),
        "in the unit of the quantity they sum up, or of the variable",
    ),
    **dict.fromkeys(words("follows ends"), "which one, not how many"),
    **dict.fromkeys(words("most_held_blocks lanes_per_replica"), "a count of what it names"),
    "output_tokens_per_s_per_user": "tokens per second, of each",
    **dict.fromkeys(
        words(
            "value low high limit knee values half_step measured predicted predicted_low predicted_high effect per_byte"
        ),
        "in the unit of the quantity beside it",
    ),
    **dict.fromkeys(words("index text answer"), "which of them: a position, a text"),
    **dict.fromkeys(words("line number starts retractions"), "a position in a file, or a count of what it names"),
    **dict.fromkeys(words("rounds first_round rounds_by_drafted max_depth"), "a count of what it names"),
    "parents": "which one, not how many",
    **dict.fromkeys(words("above below"), "in the unit of the gauge beside it"),
    "gain_factor": "a ratio of two equal units",
    "standard_errors": "in standard errors of the value beside it",
    **dict.fromkeys(words("knots sharpness tail_index"), "logarithms base 2 of tokens or bytes; exponents"),
    "fractions": "of a peak, the values of a curve",
    **dict.fromkeys(words("limit knee values"), "in the unit of the quantity or variable beside it"),
    **dict.fromkeys(words("batches repeat first_token_projections total_projections"), "counts of what they name"),
    "clock": "a function that returns seconds",
    "show": "a function that writes a number",
    **dict.fromkeys(words("left right top bottom x y start end"), "pixels of a drawing"),
    **dict.fromkeys(words("port machine"), "which one, not how many"),
    "block_size": "tokens, by the name of the flag",
    "max_model_len": "tokens, by the name of the flag",
    **dict.fromkeys(
        words(
            "replicas spare_replicas safe_replicas total_gpus safe_gpus most_gpus max_gpus gpus_per_replica "
            "slots_per_replica count"
        ),
        "a count of what it names",
    ),
    **dict.fromkeys(words("share share_per_replica"), "clients or requests per second, by the kind of the load"),
    **dict.fromkeys(
        words("gain_factor gain_factor_low gain_factor_high saving_factor total_factor"), "a ratio of two equal units"
    ),
    **dict.fromkeys(words("low_factor middle_factor high_factor"), "a figure over its own prediction"),
    **dict.fromkeys(
        words(
            "throughput_factor_low throughput_factor_high tpot_factor tpot_factor_low "
            "tpot_factor_high ttft_factor ttft_factor_low ttft_factor_high e2e_factor e2e_factor_low "
            "e2e_factor_high usd_per_million_factor usd_per_million_factor_low usd_per_million_factor_high"
        ),
        "a ratio, by the contract",
    ),
    "threshold": "in the unit of the signal beside it",
    "capacity": "of a load, in the unit that the load has: requests per second, or users",
    "requests_per_s_per_replica": "requests per second, of each",
}


def numbers(made: type) -> Iterator[str]:
    for name, field in vars(made)["__dataclass_fields__"].items():
        if re.search(r"\b(int|float)\b", str(field.type)) and not str(field.type).startswith("ClassVar"):
            yield name


def test_every_number_names_its_unit_or_is_a_known_count() -> None:
    bare = {
        f"{made.__name__}.{name}"
        for made in dataclasses_of_the_package()
        for name in numbers(made)
        if not UNIT.search(name.lstrip("_")) and name not in BARE
    }
    assert not bare, "end each in its base unit, or give the reason it needs none"


def test_the_list_of_bare_numbers_holds_none_that_is_gone_or_has_a_unit() -> None:
    used = {name for made in dataclasses_of_the_package() for name in numbers(made)}
    assert set(BARE) - used - {"elements"} == set()
    assert [name for name in BARE if UNIT.search(name)] == []


@pytest.mark.parametrize("name", ["memory", "size_gb", "latency_ms", "peak_tflops", "bandwidth", "price", "time"])
def test_a_bare_number_would_be_found(name: str) -> None:
    assert not UNIT.search(name)
    assert name not in BARE


def test_no_decimal_unit_is_in_any_name() -> None:
    shorthand = re.compile(r"(^|_)(kb|mb|gb|tb|kib|mib|gib|tib|ms|us|ns|tflops|gflops|kw)(_|$)")
    named = [
        f"{made.__name__}.{name}"
        for made in dataclasses_of_the_package()
        for name in vars(made)["__dataclass_fields__"]
        if shorthand.search(name)
    ]
    assert not named


# Nouns and results do not change

MUTABLE = {
    "_Merged": "an entry under construction",
    "_Open": "a YAML collection under construction",
    "_Skipped": "counts while reading",
    "_Plan": "formats laid over one another",
}


def test_every_described_or_computed_thing_is_frozen_and_slotted() -> None:
    loose = []
    for made in dataclasses_of_the_package():
        # No field is needed to find out: a frozen class refuses any attribute.
        blank: object = object.__new__(made)
        name = next(iter(vars(made)["__dataclass_fields__"]), None)
        if name is None or made.__name__ in MUTABLE:
            continue
        try:
            setattr(blank, name, 0)
        except FrozenInstanceError:
            if "__slots__" in vars(made):
                continue
        loose.append(f"{made.__module__}.{made.__name__}")
    assert not loose


def test_the_list_of_mutable_classes_holds_none_that_is_gone() -> None:
    assert set(MUTABLE) <= {made.__name__ for made in dataclasses_of_the_package()}


# Rooms

OUTER_ROOMS = ("cli", "api", "report")
OUTER_FILES = ("files.py", "__main__.py")
OUTSIDE = frozenset(
    words(
        "typer rich yaml pathlib os sys time random logging subprocess multiprocessing concurrent socket urllib "
        "shutil tempfile click"
    )
)


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module)):
                yield module
            case _:
                pass


def test_only_the_outer_rooms_meet_the_outside() -> None:
    inner = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in (*OUTER_ROOMS, *OUTER_FILES)
    ]
    assert len(inner) > 30
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in inner
        for name in imports(path)
        if name.partition(".")[0] in OUTSIDE
    }
    assert not found


def test_only_files_opens_files() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="open")):
                    found.add(path.name)
                case _:
                    pass
    assert found == {"files.py"}


def test_no_module_is_a_drawer_for_anything() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [module.__name__ for module in modules() if drawers & set(module.__name__.split("."))] == []


def test_nothing_goes_around_the_import_contracts() -> None:
    # The door of the library, the commands, the adapters of the importer and an optional extra load by name.
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE)
        if inside.as_posix() == "api/__init__.py" or inside.parts[0] in {"files.py", "cli", "catalog"}:
            continue
        text = path.read_text(encoding="utf-8")
        assert "import_module(" not in text, path
        assert "__import__(" not in text, path


# Docstrings and tests


def test_every_public_name_of_the_api_says_what_it_answers() -> None:
    silent = [
        f"{module.__name__}.{name}"
        for module in modules()
        if module.__name__.startswith("infcalc.api")
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
        # A dataclass without a docstring is given its signature.
        and (not value.__doc__ or value.__doc__.startswith(f"{name}("))
    ]
    assert not silent


def test_every_error_states_its_exit_code() -> None:
    from infcalc import errors  # noqa: PLC0415 - only here

    classes = [one for one in vars(errors).values() if inspect.isclass(one) and one.__module__ == errors.__name__]
    family = [one for one in classes if issubclass(one, errors.InfcalcError)]
    assert family == classes
    assert {one.exit_code for one in family} == {2, 3, 4, 5, 6}


def test_every_test_file_can_fail() -> None:
    toothless = []
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        checks = sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
        tests = [
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        if not tests or not checks:
            toothless.append(path.name)
    assert not toothless


def test_no_test_asserts_what_always_holds() -> None:
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert):
                assert not isinstance(node.test, ast.Constant | ast.Tuple | ast.List), f"{path.name}:{node.lineno}"


def test_tests_mirror_the_rooms() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert rooms <= {path.name for path in TESTS.iterdir() if path.is_dir()}

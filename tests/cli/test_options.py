from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType

import pytest

from infcalc.cli import options
from infcalc.cli.app import COMMANDS
from infcalc.cli.given import (
    ask_from,
    contexts_from,
    listed,
    real_numbers,
    refuse_empty,
    single,
    split,
    tokens,
    whole_numbers,
)
from infcalc.cli.options import CATALOG, CONTEXT, DEPLOYMENT, DRAFTING, OUTPUT, Option
from infcalc.errors import UsageError

MODULES = {command.name: import_module(command.module) for command in COMMANDS}
ALL: tuple[Option, ...] = tuple(
    {option.name: option for module in MODULES.values() for option in module.OPTIONS}.values()
)


@pytest.mark.parametrize("name", MODULES)
def test_no_command_takes_an_option_twice_or_one_of_its_own(name: str) -> None:
    module: ModuleType = MODULES[name]
    flags = [flag for option in module.OPTIONS for flag in option.flags]
    assert len(flags) == len(set(flags))
    shared = [one for table in vars(options).values() if isinstance(table, tuple) for one in table]
    assert all(any(option is one for one in shared) for option in module.OPTIONS)


@pytest.mark.parametrize("name", ["kv", "concurrency", "roofline", "speculate"])
def test_every_calculator_takes_a_deployment_and_an_output(name: str) -> None:
    assert {*DEPLOYMENT, *CONTEXT, *CATALOG, *OUTPUT} <= set(MODULES[name].OPTIONS)


def test_the_flags_of_the_contract_are_there() -> None:
    flags = {flag for option in ALL for flag in option.flags}
    promised = """
        --model -m --gpu -g --gpus -n --tp --pp --dp --ep --dcp --weights --kv-dtype --quant --engine --engine-version
        --memory-fraction --max-model-len --max-num-seqs --max-num-batched-tokens --block-size --enforce-eager
        --context -c --batch --method --draft-model --num-draft-tokens --acceptance --catalog
        --format --json --output --explain --require
    """
    assert set(promised.split()) <= flags


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_an_option_says_what_it_does_under_the_name_of_its_flag(option: Option) -> None:
    assert option.help.endswith((".", "]"))
    assert option.flags[0] == "--" + option.name.replace("_", "-")
    assert all(re.fullmatch(r"--[a-z-]+|-[a-z]", flag) for flag in option.flags)
    # A value that was not given must be told from one that was.
    assert option.default is (False if option.kind is bool else None)


def test_an_ask_holds_what_was_given() -> None:
    given = dict.fromkeys((option.name for option in (*DEPLOYMENT, *CATALOG)), None) | {"enforce_eager": True}
    ask = ask_from(given | {"model": ["a", "b"], "quant": ["fp8,int4", "nvfp4"], "max_model_len": "128k", "tp": 2})
    assert (ask.models, ask.kv_dtypes) == (("a", "b"), ("fp8", "int4", "nvfp4"))
    assert (ask.max_model_len, ask.tp, ask.gpus, ask.enforce_eager) == (131_072, 2, (), True)
    assert ask_from(given | {"kv_dtype": ["fp8"]}).kv_dtypes == ("fp8",)
    with pytest.raises(UsageError, match="both --quant and --kv-dtype"):
        ask_from(given | {"kv_dtype": ["fp8"], "quant": ["fp8"]})


def test_lists_are_split_at_commas_only_where_that_is_the_custom() -> None:
    assert listed(["a,b", " c "], "--model") == ("a", "b", "c")
    assert split(["a,b"]) == ("a,b",)
    assert split(None) == listed(None, "--model") == ()


@pytest.mark.parametrize("text", ["a,,b", ",a", "a,", "a, ,b"])
def test_a_forgotten_item_of_a_list_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="has an empty item") as refused:
        listed(["x", text], "--quant")
    assert (refused.value.place, refused.value.hint) == ("--quant", "fill it, or leave out its comma")
    for read, place in ((whole_numbers, "--batch"), (real_numbers, "--acceptance")):
        with pytest.raises(UsageError, match="has an empty item"):
            read([text.replace("a", "1").replace("b", "2")], place)


@pytest.mark.parametrize(
    ("text", "number"), [("4096", 4096), ("4k", 4096), ("128K", 131_072), ("1M", 2**20), ("0.5k", 512)]
)
def test_lengths_are_counted_in_tokens(text: str, number: int) -> None:
    assert tokens(text, "--context") == number
    assert contexts_from({"context": [text, f"1,{text}"]}) == (number, 1, number)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "4kk", "k", "nan", "1e3", "9" * 5000, "0.0001k"])
def test_what_is_no_length_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        tokens(text, "--context")
    assert refused.value.place == "--context"
    assert refused.value.hint


def test_numbers_of_lists() -> None:
    assert whole_numbers(["1,8", "32"], "--batch") == (1, 8, 32)
    assert real_numbers(["0.7,0.5"], "--acceptance") == (0.7, 0.5)
    for wrong in (["1.5"], ["x"], ["1,x"]):
        with pytest.raises(UsageError) as refused:
            whole_numbers(wrong, "--batch")
        assert refused.value.place == "--batch"
        assert refused.value.hint
    with pytest.raises(UsageError, match="not a number"):
        real_numbers(["much"], "--acceptance")


def test_a_value_that_is_taken_once() -> None:
    assert single((), "--batch") is None
    assert single((8,), "--batch") == 8
    with pytest.raises(UsageError, match="2 values"):
        single((8, 9), "--batch")


@pytest.mark.parametrize("value", ["", "  ", ",", ["fp8", ""], [" , "]])
def test_empty_values_are_refused_by_the_name_of_the_flag(value: object) -> None:
    option = next(option for option in DRAFTING if option.name == "method")
    with pytest.raises(UsageError) as refused:
        refuse_empty((option,), {"method": value})
    assert refused.value.place == "--method"


def test_values_and_options_left_out_are_not_empty() -> None:
    refuse_empty(ALL, {})
    refuse_empty(ALL, {"model": ["a"], "tp": 0, "json": False, "format": None, "context": ["4k,8k"]})
    assert not any(option.default == "" for option in ALL)

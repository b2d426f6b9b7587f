"""Module names of checkpoints (``model.layers.12.mlp.down_proj``, ``*self_attn*``) to tensors of the inventory.

Quantization blocks name what they cover or leave out by module names, in three spellings: plain names, globs and
regular expressions. All three are answered here with the same result: which tensor (role and name) of which layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from infcalc.catalog.module_dialects import ModuleKey, dialect
from infcalc.errors import FileProblem
from infcalc.frozen import frozen
from infcalc.spec.weights import TensorRole

Selection: TypeAlias = dict[ModuleKey, set[int]]
"""Layers of each tensor; modules outside the layers have :data:`NO_LAYER`."""

NO_LAYER = -1
MAX_LAYERS = 4096
"""Layers beyond this are not enumerated; the architecture adapter refuses such a config."""
_MAX_PATTERN_CHARACTERS = 500

_ATTENTION: dict[str, tuple[str, ...]] = {
    "q_proj": ("q",),
    "k_proj": ("k",),
    "v_proj": ("v",),
    "o_proj": ("o",),
    "out_proj": ("o",),
    "qkv_proj": ("q", "k", "v"),
    "query_key_value": ("q", "k", "v"),
    "Wqkv": ("q", "k", "v"),
    "c_attn": ("q", "k", "v"),
    "c_proj": ("o",),
    "dense": ("o",),
    "q_a_proj": ("q_a",),
    "q_b_proj": ("q_b",),
    "kv_a_proj_with_mqa": ("kv_a",),
    "kv_b_proj": ("kv_b",),
    "fused_qkv_a_proj": ("q_a", "kv_a"),
}
_FEED_FORWARD: dict[str, tuple[str, ...]] = {
    "gate_proj": ("gate",),
    "up_proj": ("up",),
    "down_proj": ("down",),
    "gate_up_proj": ("gate", "up"),
    "w1": ("gate",),
    "w3": ("up",),
    "w2": ("down",),
    "fc1": ("up",),
    "fc2": ("down",),
    "c_fc": ("up",),
    "c_proj": ("down",),
    "dense_h_to_4h": ("up",),
    "dense_4h_to_h": ("down",),
}
_ATTENTION_HOMES = ("self_attn", "attn", "attention", "self_attention", "mixer")
_FEED_FORWARD_HOMES = ("mlp", "feed_forward", "block_sparse_moe", "mixer", "ffn")
_RECURRENT_HOMES = ("linear_attn", "mamba", "mixer", "self_attn")
# Adapters name the input projections as their family stores them, or by the parts.
_RECURRENT: dict[str, tuple[str, ...]] = {
    "in_proj": ("in_proj", "in", "in_bc"),
    "in_proj_qkvz": ("in_proj_qkvz", "qkv", "z"),
    "in_proj_qkv": ("in_proj_qkv", "qkv"),
    "in_proj_z": ("in_proj_z", "z"),
    "in_proj_ba": ("in_proj_ba", "ba"),
    "in_proj_b": ("in_proj_b", "ba"),
    "in_proj_a": ("in_proj_a", "ba"),
    "out_proj": ("out_proj", "out"),
    "x_proj": ("x_proj", "x"),
    "dt_proj": ("dt_proj", "dt"),
}
_KIMI_DELTA: dict[str, tuple[str, ...]] = {
    "q_proj": ("qkv",),
    "k_proj": ("qkv",),
    "v_proj": ("qkv",),
    "o_proj": ("out", "o_proj"),
    "f_a_proj": ("f_a",),
    "f_b_proj": ("f_b",),
    "b_proj": ("b",),
    "g_proj": ("g",),
    "g_a_proj": ("g_a",),
    "g_b_proj": ("g_b",),
}
_INDEXER = {"wq_b": "q_b", "wk": "k", "weights_proj": "weights"}
_ROUTERS = {
    "gate": "router",
    "router": "router",
    "gate.wg": "router",
    "router.layer": "router",
    "shared_expert_gate": "shared_gate",
}


def _spellings() -> dict[str, tuple[ModuleKey, ...]]:
    """Return every known module path below a layer with the tensors it stands for."""
    table: dict[str, tuple[ModuleKey, ...]] = {
        f"self_attn.indexer.{module}": ((TensorRole.INDEXER, name),) for module, name in _INDEXER.items()
    }
    table |= {module: tuple((TensorRole.FEED_FORWARD, n) for n in _FEED_FORWARD[module]) for module in ("fc1", "fc2")}
    for home in _ATTENTION_HOMES:
        for module, names in _ATTENTION.items():
            table[f"{home}.{module}"] = tuple((TensorRole.ATTENTION, name) for name in names)
    for home in _FEED_FORWARD_HOMES:
        table |= {f"{home}.{router}": ((TensorRole.ROUTER, name),) for router, name in _ROUTERS.items()}
        for module, names in _FEED_FORWARD.items():
            for path, role in _feed_forward_paths(home, module):
                table[path] = table.get(path, ()) + tuple((role, name) for name in names)
    for home in _RECURRENT_HOMES:
        # `mixer.out_proj` or `self_attn.q_proj` may belong to attention or to a recurrent mixer: it names both.
        for module, names in (_KIMI_DELTA if home == "self_attn" else _RECURRENT).items():
            path = f"{home}.{module}"
            table[path] = table.get(path, ()) + tuple((TensorRole.RECURRENT, name) for name in names)
    return table


def _feed_forward_paths(home: str, module: str) -> tuple[tuple[str, TensorRole], ...]:
    """Return the paths under which ``module`` of a feed-forward block appears in a layer."""
    experts = (f"{home}.experts.0.{module}", TensorRole.EXPERT)
    if home == "block_sparse_moe":
        return (experts,)
    return (
        (f"{home}.{module}", TensorRole.FEED_FORWARD),
        experts,
        (f"{home}.experts.{module}", TensorRole.EXPERT),
        (f"{home}.shared_experts.{module}", TensorRole.SHARED_EXPERT),
        (f"{home}.shared_expert.{module}", TensorRole.SHARED_EXPERT),
    )


SPELLINGS = _spellings()
OUTSIDE: dict[str, ModuleKey] = {
    "lm_head": (TensorRole.LM_HEAD, "lm_head"),
    "language_model.lm_head": (TensorRole.LM_HEAD, "lm_head"),
    "output": (TensorRole.LM_HEAD, "lm_head"),
    "embed_out": (TensorRole.LM_HEAD, "lm_head"),
    "model.embed_tokens": (TensorRole.EMBEDDING, "embed_tokens"),
    "language_model.model.embed_tokens": (TensorRole.EMBEDDING, "embed_tokens"),
    "model.language_model.embed_tokens": (TensorRole.EMBEDDING, "embed_tokens"),
}
NAMES_OF_ROLE: dict[TensorRole, frozenset[str]] = {
    role: frozenset(name for keys in SPELLINGS.values() for r, name in keys if r is role)
    for role in {key[0] for keys in SPELLINGS.values() for key in keys}
}
"""Every tensor name this table knows of a role: a selection of all of them selects the role."""

_PREFIXES = (
    "language_model.model.layers.",
    "model.language_model.layers.",
    "model.decoder.layers.",
    "transformer.encoder.layers.",
    "transformer.blocks.",
    "transformer.h.",
    "backbone.layers.",
    "gpt_neox.layers.",
    "model.layers.",
)
_IN_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})(?:\.(.*))?$")
_IN_MTP = re.compile(r"^(?:model\.)?mtp(?:\.layers)?\.(\d{1,6})(?:\.(.*))?$")
_EXPERT_INDEX = re.compile(r"(^|\.)experts\.(\d{1,6})(?=\.|$)")
_NOT_LANGUAGE = re.compile(
    r"vision|visual|vit\b|multi_modal|mm_projector|audio|image|patch_embed|sam_model|resampler|merger|projector",
    re.IGNORECASE,
)


def select(
    pattern: str, *, num_layers: int, num_mtp_layers: int = 0, family: str = "", place: str = "quantization_config"
) -> Selection:
    """Return the tensors that ``pattern`` names, in a model of ``num_layers`` and then ``num_mtp_layers`` layers.

    ``re:`` starts a regular expression matched from the start of a full module name; a pattern with ``*``, ``?`` or
    ``[`` is a glob; any other is a module name, whole or in part, that also stands for the modules below it. Of the
    experts of a layer the first stands for all. ``family`` (the ``model_type``) decides which names patterns meet.

    Raises:
        FileProblem: a regular expression that does not compile, or that could take for ever to match.

    """
    if pattern.startswith("re:"):
        return select_expression(
            pattern[3:], num_layers=num_layers, num_mtp_layers=num_mtp_layers, family=family, place=place
        )
    if is_expression(pattern):
        glob = _compiled(f"(?:{_translated(pattern)})(?:\\..*)?", place)
        layers = _layers_of_glob(pattern, num_layers + num_mtp_layers)
        return _by_expression(glob.fullmatch, pattern, layers, family)
    return _by_name(pattern.strip(".").removesuffix(".weight"), num_layers, num_mtp_layers)


def select_expression(
    expression: str, *, num_layers: int, num_mtp_layers: int = 0, family: str = "", place: str
) -> Selection:
    """Return the tensors whose full module name the regular expression matches from its start.

    Raises:
        FileProblem: it does not compile, or could take for ever to match.

    """
    check_bounded(expression, place)
    layers = _layers_of_expression(expression, num_layers + num_mtp_layers)
    return _by_expression(_compiled(expression, place).match, expression.replace("\\", ""), layers, family)


def is_expression(pattern: str) -> bool:
    """Return whether ``pattern`` is a glob or a regular expression, and not a plain name."""
    return pattern.startswith("re:") or any(mark in pattern for mark in "*?[")


def concerns_language_model(pattern: str) -> bool:
    """Return whether ``pattern`` could name a module of the decoder (and not of a vision or audio tower, or a norm)."""
    return not (_NOT_LANGUAGE.search(pattern) or "norm" in pattern or pattern.endswith(("_bias", ".bias", "conv1d")))


def merge(into: Selection, other: Selection) -> None:
    """Add ``other`` to ``into``."""
    for key, layers in other.items():
        into.setdefault(key, set()).update(layers)


def _compiled(expression: str, place: str) -> re.Pattern[str]:
    """Return the compiled expression."""
    if len(expression) > _MAX_PATTERN_CHARACTERS:
        raise FileProblem(f"a module pattern of {len(expression):,} characters", place=place, hint="shorten it")
    try:
        return re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise FileProblem(
            f"module pattern {expression[:80]!r} is not a regular expression: {error}", place=place
        ) from error


# Regular expressions that backtrack without end ----------------------------------------------------------------------

_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?(?:[:=!>]|<[=!]|P<\w+>))?)|(?P<close>\))"
    r"|(?P<repeat>[*+]|\{\d*,?\d*\})[?+]?|(?P<bar>\|)|(?P<any>\.)|(?P<other>.)",
    re.DOTALL,
)
_MAX_IN_A_ROW = 2
_MAX_REPEATS = 6
_FIRM_CHARACTERS = 2
"""So many literal characters between two repeats keep them from sharing the same text in many ways."""
_NARROW = re.compile(r"\\[dbBAZ.\-_/]")


class _Backtracking:
    """What one pass over an expression knows of the ways it can match the same text."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self.total = 0
        self.literals = 0
        self.previous = ""
        # Of each open group: repeats in a row before it, the most of its branches, and whether it repeats or chooses.
        self.groups: list[tuple[int, int, bool]] = [(0, 0, False)]
        self.closed = (0, 0, False)

    def read(self, kind: str, text: str) -> str:
        """Take in one token; return what is wrong with it, else nothing."""
        match kind:
            case "repeat":
                return self._repeat()
            case "open":
                self.groups.append((self.in_a_row, 0, False))
            case "bar":
                before, most, _ = self.groups[-1]
                self.groups[-1] = (before, max(most, self.in_a_row), True)
                self.in_a_row, self.literals = before, 0
            case "close" if len(self.groups) > 1:
                before, most, inside = self.groups.pop()
                self.closed = (before, self.total, inside)
                self.in_a_row = max(self.in_a_row, most)
                self.groups[-1] = (*self.groups[-1][:2], self.groups[-1][2] or inside)
            case "other" if text == "?":
                if self.previous == "close":
                    self._skip_group()
            case "other" | "escape" if text not in {"^", "$"}:
                self.literals += 1
                if self.literals >= _FIRM_CHARACTERS:
                    self.in_a_row = 0
            case _:
                self.literals = 0
        self.previous = "narrow" if kind == "escape" and _NARROW.match(text) else kind
        return ""

    def _repeat(self) -> str:
        if self.previous == "close":
            if self.closed[2]:
                return "repeats a group that itself repeats or chooses"
            self._skip_group()
        self.groups[-1] = (*self.groups[-1][:2], True)
        if self.previous in {"any", "class", "close", "escape"}:
            self.in_a_row += 1
            self.total += 1
        self.literals, self.previous = 0, "repeat"
        if self.in_a_row > _MAX_IN_A_ROW or self.total > _MAX_REPEATS:
            return "has too many open repeats"
        return ""

    def _skip_group(self) -> None:
        """Count as if the group just closed matched nothing."""
        self.in_a_row = max(self.in_a_row, self.closed[0])


def check_bounded(expression: str, place: str) -> None:
    """Check that matching ``expression`` cannot take for ever.

    Refused are a repeat of a group that itself repeats or chooses, more than two open repeats (``.*``) without at least
    two literal characters between them, and more than six in all.

    Raises:
        FileProblem: it could.

    """
    state = _Backtracking()
    for token in _TOKEN.finditer(expression[:_MAX_PATTERN_CHARACTERS]):
        fault = state.read(token.lastgroup or "", token[0])
        if fault:
            raise FileProblem(
                f"module pattern {expression[:80]!r} {fault}: it could take for ever to match",
                place=place,
                hint="write it as a glob, or with fewer repeats",
            )


# Matching ------------------------------------------------------------------------------------------------------------

_LAYER_NUMBER = re.compile(r"(?:layers|h|blocks)\\?\.(\d{1,6})(.{0,2})", re.DOTALL)
# What neither names a layer nor depends on how many digits its number has.
_BLIND_EXPRESSION = re.compile(r"(?:\\\.|\.[*+]|[A-Za-z_|()$^:!=<>,?-])*")
_BLIND_GLOB = re.compile(r"[A-Za-z_.*-]*")


@frozen
class _Layers:
    """Layers whose names a pattern has to be tried on; where one stands for all, ``num_alike`` says how many."""

    layers: tuple[int, ...]
    num_alike: int | None = None


def _starting(digits: str, total: int) -> _Layers:
    return _Layers(layers=tuple(layer for layer in range(total) if str(layer).startswith(digits)))


def _layers_of_glob(pattern: str, total: int) -> _Layers:
    total = min(total, MAX_LAYERS)
    if _BLIND_GLOB.fullmatch(pattern):
        return _Layers(layers=tuple(range(min(1, total))), num_alike=total)
    numbers = list(_LAYER_NUMBER.finditer(pattern))
    if len(numbers) == 1 and "[" not in pattern:
        digits, rest = numbers[0].groups()
        if rest.startswith((".", "*", "?")) or not rest:
            return _starting(digits, total) if rest[:1] in {"*", "?"} else _exactly(digits, total)
    return _Layers(layers=tuple(range(total)))


def _layers_of_expression(expression: str, total: int) -> _Layers:
    total = min(total, MAX_LAYERS)
    if _BLIND_EXPRESSION.fullmatch(expression):
        return _Layers(layers=tuple(range(min(1, total))), num_alike=total)
    numbers = list(_LAYER_NUMBER.finditer(expression))
    if len(numbers) == 1 and not set("|([?") & set(expression):
        digits, rest = numbers[0].groups()
        if rest == "\\.":
            return _exactly(digits, total)
        if not rest:
            return _starting(digits, total)
    return _Layers(layers=tuple(range(total)))


def _exactly(digits: str, total: int) -> _Layers:
    layer = int(digits)
    return _Layers(layers=(layer,) if layer < total and str(layer) == digits else ())


def _translated(glob: str) -> str:
    """Return the regular expression of a glob; a character class keeps its meaning when it is closed.

    What stands between two stars is taken where it first occurs and never sought again: trying later places cannot
    help, and without going back the match takes no longer than the name.
    """
    segments: list[str] = [""]
    index = 0
    while index < len(glob):
        mark = glob[index]
        closing = glob.find("]", index + 2) if mark == "[" else -1
        if mark == "*":
            if segments[-1] or len(segments) == 1:
                segments.append("")
        elif mark == "?":
            segments[-1] += "."
        elif closing > 0:
            inner = glob[index + 1 : closing].replace("\\", "\\\\").replace("[", "\\[")
            segments[-1] += f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
            index = closing
        else:
            segments[-1] += re.escape(mark)
        index += 1
    first, *others = segments
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{segment})" for segment in middle) + f".*{last}"


def _by_expression(matches: Callable[[str], object], pattern: str, layers: _Layers, family: str) -> Selection:
    """Return the tensors of which a module name of the family matches.

    A fused name counts only where the pattern names none of its parts. A role that is named whole is selected whole.
    """
    found: Selection = {}
    for name, key in OUTSIDE.items():
        if matches(name):
            found.setdefault(key, set()).add(NO_LAYER)
    names = dialect(family)
    prefix = _prefix(pattern, names.prefix)
    inside: Selection = {}
    for table in (names.stored, names.fused):
        parts = frozenset(inside)
        for path, keys in table.items():
            if parts and not parts.isdisjoint(keys):
                continue
            where = {layer for layer in layers.layers if matches(f"{prefix}{layer}.{path}")}
            if where:
                for key in keys:
                    inside.setdefault(key, set()).update(where)
    _fill_roles(inside, names.stored)
    if layers.num_alike is not None:
        inside = {key: set(range(layers.num_alike)) for key in inside}
    merge(found, inside)
    return found


def _prefix(pattern: str, own: str) -> str:
    """Return where the layers are: as the pattern says, else as the family has it."""
    for prefix in _PREFIXES:
        if prefix in pattern or prefix.removesuffix(".") in pattern:
            return prefix
    return _PREFIXES[1] if "language_model" in pattern else own


def _fill_roles(found: Selection, stored: Mapping[str, tuple[ModuleKey, ...]]) -> None:
    """Select a role under all its names where it is selected under all that the family has."""
    for role in tuple(dict.fromkeys(key[0] for key in found)):
        held = {key for keys in stored.values() for key in keys if key[0] is role}
        whole: set[int] = set.intersection(*(found.get(key, set()) for key in held)) if held else set()
        if whole:
            for name in sorted(NAMES_OF_ROLE.get(role, ())):
                found.setdefault((role, name), set()).update(whole)


def _by_name(name: str, num_layers: int, num_mtp_layers: int) -> Selection:
    """Return the tensors of a module name: one inside a layer, or a fragment of one that holds in every layer."""
    found: Selection = {}
    if not name or _NOT_LANGUAGE.search(name):
        return found
    total = min(num_layers + num_mtp_layers, MAX_LAYERS)
    for outside, key in OUTSIDE.items():
        if outside == name or outside.endswith(f".{name}"):
            found.setdefault(key, set()).add(NO_LAYER)
    if name == "mtp":
        everything = {key for keys in SPELLINGS.values() for key in keys}
        return {key: set(range(num_layers, total)) for key in everything} if total > num_layers else {}
    if match := _IN_MTP.search(name):
        layer = num_layers + int(match[1])
        return _below(match[2] or "", [layer] if layer < total else [])
    if match := _IN_LAYER.search(name):
        layer = int(match[1])
        return _below(match[2] or "", [layer] if layer < total else [])
    merge(found, _below(name, list(range(total))))
    return found


def _below(path: str, layers: list[int]) -> Selection:
    """Return the tensors at or below ``path`` (whole components of it) in each of ``layers``."""
    expert = _EXPERT_INDEX.search(path)
    if not layers or (expert and int(expert[2]) != 0):
        return {}
    found: Selection = {}
    for spelling, keys in SPELLINGS.items():
        if not path or f".{path}." in f".{spelling}.":
            for key in keys:
                found.setdefault(key, set()).update(layers)
    return found

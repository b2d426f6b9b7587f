"""Argument lists as engines print them: Python mappings, ``Namespace(...)``, ``key=value`` and command lines."""

from __future__ import annotations

import re

_OPEN, _CLOSE = "([{", ")]}"
_KEY = re.compile(r"""^\s*['"]?([A-Za-z_][\w-]*)['"]?\s*[=:]\s*(.*?)\s*$""", re.DOTALL)
_FLAG = re.compile(r"(?<!\S)--?([A-Za-z][\w-]*)(?:[= ]+(?!-[-A-Za-z])('[^']*'|\"[^\"]*\"|\S+))?")
_SPACED = re.compile(r"(?<![\w.'\"])([A-Za-z_]\w{0,60})=('[^']{0,400}'|[^\s,'(){}\[\]]{1,400})")
_MAX_PAIRS = 5_000


def pairs(text: str) -> dict[str, str]:
    """Return ``key=value`` or ``'key': value`` pairs of the outermost level; values stay text, the first of a key wins.

    The text begins inside the list; it ends at the bracket that closes the list, or where the line was cut.

    >>> pairs("model='a/b', speculative_config={'model': 'c'}, tp=2), more=1")
    {'model': 'a/b', 'speculative_config': "{'model': 'c'}", 'tp': '2'}
    """
    found: dict[str, str] = {}
    for item in _items(text):
        match = _KEY.match(item)
        if match is not None and len(found) < _MAX_PAIRS:
            found.setdefault(match[1], bare(match[2]))
    return found


def spaced(text: str) -> dict[str, str]:
    """Return ``key=value`` pairs that stand between blanks or commas, whatever else is in the line.

    >>> spaced("model='a/b' tokenizer=None tensor_parallel_size=2 config=C(x=1)")
    {'model': 'a/b', 'tokenizer': 'None', 'tensor_parallel_size': '2', 'config': 'C', 'x': '1'}
    """
    found: dict[str, str] = {}
    for match in _SPACED.finditer(text):
        found.setdefault(match[1], bare(match[2]))
    return found


def flags(text: str) -> dict[str, str]:
    """Return the options of a command line, dashes in names as underscores; a flag without value is ``True``.

    >>> flags("vllm serve a/b --tensor-parallel-size 2 --enforce-eager --max-num-seqs=64")
    {'tensor_parallel_size': '2', 'enforce_eager': 'True', 'max_num_seqs': '64'}
    """
    found: dict[str, str] = {}
    for match in _FLAG.finditer(text):
        found.setdefault(match[1].replace("-", "_"), bare(match[2]) if match[2] else "True")
    return found


def bare(text: str) -> str:
    """Return a value without its quotes."""
    stripped = text.strip().rstrip(",")
    quoted = len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "'\""
    return stripped[1:-1] if quoted else stripped


def _items(text: str) -> list[str]:
    """Split at the commas of the outermost level, up to the bracket that closes it."""
    items: list[str] = []
    depth, quote, start = 0, "", 0
    previous = ""
    for position, character in enumerate(text):
        if quote:
            if character == quote and previous != "\\":
                quote = ""
        elif character in "'\"" and not previous.isalnum():
            # An apostrophe inside a word quotes nothing.
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            if depth == 0:
                items.append(text[start:position])
                return items
            depth -= 1
        elif character == "," and depth == 0:
            items.append(text[start:position])
            start = position + 1
        previous = character
    items.append(text[start:])
    return items

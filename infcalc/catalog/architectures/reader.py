"""Reading one config: typed, bounded access to its keys, and the refusal of what no adapter has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from infcalc.catalog.architectures.harmless import is_harmless
from infcalc.errors import FileProblem, UnsupportedArchitecture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Value: TypeAlias = object

MAX_DIMENSION = 10**7
MAX_LAYERS = 10_000
MAX_VOCABULARY = 10**8
MAX_CONTEXT_TOKENS = 10**10
_MAX_SHOWN = 80

_MAX_LISTED = 30


class Reader:
    """Typed access to one JSON object, remembering which keys were read.

    A key that is neither read nor harmless (:mod:`infcalc.catalog.architectures.harmless`) is refused in the end. Every
    value is checked: booleans are not numbers, numbers are whole and within bounds, lists hold what is asked for.
    """

    def __init__(self, config: Mapping[str, Value], *, path: str = "", parent: Reader | None = None) -> None:
        self.config = config
        self.path = path
        self.parent = parent
        self._read: set[str] = set()

    def with_values(self, values: Mapping[str, Value]) -> Reader:
        """Return a reader of the same object with some ``values`` replaced; what either reads counts for both."""
        other = Reader({**self.config, **values}, path=self.path, parent=self.parent)
        other._read = self._read
        return other

    def place(self, key: str) -> str:
        """Return the place of ``key`` for an error: ``config.json text_config.hidden_size``."""
        return f"config.json {self.path}{key}"

    def has(self, *keys: str) -> bool:
        """Whether any of ``keys`` is there with a value other than null."""
        self.accept(*keys)
        return any(self.config.get(key) is not None for key in keys)

    def accept(self, *keys: str) -> None:
        """Declare ``keys`` understood although their values do not matter."""
        self._read.update(keys)

    def integer(self, *keys: str, default: int | None = None, low: int = 1, high: int = MAX_DIMENSION) -> int:
        """Return the whole number of the first of ``keys`` that is there, else ``default``.

        Raises:
            FileProblem: it is missing without a default, not a whole number, or out of bounds.

        """
        found = self.optional_integer(*keys, low=low, high=high)
        if found is not None:
            return found
        if default is None:
            others = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
            raise FileProblem(
                f"key {keys[0]!r}{others} is missing",
                place=self.place(keys[0]),
                hint="the architecture cannot be sized without it; is this the complete config.json of the model?",
            )
        return default

    def optional_integer(self, *keys: str, low: int = 1, high: int = MAX_DIMENSION) -> int | None:
        """Return the whole number of the first of ``keys`` that is there and not null, else None.

        Raises:
            FileProblem: it is not a whole number or out of bounds.

        """
        self.accept(*keys)
        for key in keys:
            value = self.config.get(key)
            if value is not None:
                return self._whole(key, value, low, high)
        return None

    def flag(self, key: str, *, default: bool) -> bool:
        """Return the boolean ``key``, or ``default`` where it is absent or null.

        Raises:
            FileProblem: it is something else.

        """
        self.accept(key)
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise FileProblem(f"{shown(value)} is not true or false", place=self.place(key))
        return value

    def text(self, *keys: str, default: str = "") -> str:
        """Return the text of the first of ``keys`` that is there, else ``default``.

        Raises:
            FileProblem: it is not text.

        """
        self.accept(*keys)
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if not isinstance(value, str):
                raise FileProblem(f"{shown(value)} is not text", place=self.place(key))
            return value
        return default

    def number(self, key: str) -> float:
        """Return the finite positive number ``key``.

        Raises:
            FileProblem: it is missing or not such a number.

        """
        self.accept(key)
        value = self.config.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_DIMENSION:
            raise FileProblem(f"{shown(value)} is not a positive number", place=self.place(key))
        return float(value)

    def items(self, *keys: str) -> tuple[Value, ...] | None:
        """Return the list of the first of ``keys`` that is there, or None.

        Raises:
            FileProblem: it is not a list, or absurdly long.

        """
        self.accept(*keys)
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if not isinstance(value, list | tuple) or len(value) > MAX_LAYERS:
                raise FileProblem(f"not a list of at most {MAX_LAYERS} entries", place=self.place(key))
            return tuple(value)
        return None

    def words(self, *keys: str, length: int | None = None) -> tuple[str, ...] | None:
        """Return a list of texts; ``length`` is how many entries it must have.

        Raises:
            FileProblem: it is no such list.

        """
        found = self.items(*keys)
        if found is None:
            return None
        words = tuple(item for item in found if isinstance(item, str))
        if len(words) != len(found):
            raise FileProblem("not a list of texts", place=self.place(keys[0]))
        self._check_length(keys[0], found, length)
        return words

    def integers(
        self, *keys: str, length: int | None = None, low: int = 0, high: int = MAX_DIMENSION
    ) -> tuple[int, ...] | None:
        """Return a list of whole numbers; ``length`` is how many entries it must have.

        Raises:
            FileProblem: it is no such list.

        """
        found = self.items(*keys)
        if found is None:
            return None
        self._check_length(keys[0], found, length)
        return tuple(self._whole(f"{keys[0]}[{index}]", item, low, high) for index, item in enumerate(found))

    def section(self, key: str) -> Reader | None:
        """Return the nested object ``key``, or None.

        Raises:
            FileProblem: it is not an object.

        """
        self.accept(key)
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise FileProblem("not an object", place=self.place(key))
        return Reader(value, path=f"{self.path}{key}.", parent=self)

    def refuse_unread(self, model_type: str) -> None:
        """Refuse keys that nobody has read and that are not known to be harmless.

        Raises:
            UnsupportedArchitecture: there are such keys; the message lists them.

        """
        unread = self.unread()
        if unread:
            raise UnsupportedArchitecture(
                f"model_type {model_type!r} with keys that are not understood: {listed(unread)}",
                place=f"config.json {self.path.rstrip('.')}".rstrip(),
                hint="they can change the layers, so no figure would be right; describe the model in a catalog file",
            )

    def unread(self) -> list[str]:
        """Return the keys that hold a value, were not read, and are not known to leave weights and cache alone."""
        return [
            key
            for key, value in self.config.items()
            if key not in self._read
            and value not in (None, False, 0, "", [], {})
            and not is_harmless(key)
            and not self._switched_off(key)
        ]

    def _switched_off(self, key: str) -> bool:
        """Return whether ``key`` describes a window that no layer has."""
        switch = self.config.get("use_sliding_window")
        return (key == "sliding_window" and switch is False) or (key == "max_window_layers" and not switch)

    def unsupported(self, key: str, value: Value, known: Sequence[str] = ()) -> UnsupportedArchitecture:
        """Return the error that ``key`` has a value no adapter understands."""
        return UnsupportedArchitecture(
            f"{key} = {shown(value)} is not understood",
            place=self.place(key),
            hint=f"understood values: {', '.join(known)}" if known else "describe the model in a catalog file",
        )

    def _whole(self, key: str, value: Value, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FileProblem(f"{shown(value)} is not a whole number", place=self.place(key))
        if not low <= value <= high:
            raise FileProblem(f"{shown(value)} is not between {low} and {high}", place=self.place(key))
        return value

    def _check_length(self, key: str, found: tuple[Value, ...], length: int | None) -> None:
        if length is not None and len(found) != length:
            raise FileProblem(f"has {len(found)} entries for {length} layers", place=self.place(key))


def listed(keys: Sequence[str]) -> str:
    """Return ``keys`` as an error message may list them, however long or many they are."""
    names = [key if len(key) <= _MAX_SHOWN else f"{key[:_MAX_SHOWN]}..." for key in keys[:_MAX_LISTED]]
    rest = len(keys) - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest else "")


def shown(value: Value) -> str:
    """Return ``value`` as an error message may print it, however odd it is."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return str(value) if abs(value) < MAX_CONTEXT_TOKENS * MAX_DIMENSION else "a huge number"
    if isinstance(value, float | str):
        text = repr(value)
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    return "an object" if isinstance(value, dict) else "a list"

"""From parsed options to the requests that allocators and prefix caches are tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from infcalc.api.paging_waste import PagingAsk
from infcalc.api.prefix_stream import PrefixAsk
from infcalc.cli.given import tokens
from infcalc.errors import UsageError
from infcalc.kvcache.prefix_index import IndexKind, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

_Word = TypeVar("_Word", bound="StrEnum")


def paging_from(options: Mapping[str, Any]) -> PagingAsk:
    """Return the requests of ``paging``.

    Raises:
        UsageError: a length that is not a token count.

    """
    given = {
        "num_requests": options.get("requests"),
        "input_tokens": options.get("input_tokens"),
        "output_tokens": options.get("output_tokens"),
        "pool_tokens": _length(options, "pool_tokens"),
        "load_fraction": options.get("load"),
        "shared_prefix_tokens": _length(options, "shared_prefix_tokens"),
        "num_shared_requests": options.get("shared_requests"),
        "seed": options.get("seed"),
    }
    return PagingAsk(**{name: value for name, value in given.items() if value is not None})


def prefixes_from(options: Mapping[str, Any]) -> PrefixAsk:
    """Return stream and cache of ``prefix-cache``.

    Raises:
        UsageError: a length that is not a token count, an index or a policy that is not known.

    """
    given: dict[str, Any] = {
        "num_requests": options.get("requests"),
        "num_prefixes": options.get("prefixes"),
        "sharing_fraction": options.get("sharing"),
        "prefix_tokens": _length(options, "prefix_tokens"),
        "input_tokens": options.get("input_tokens"),
        "output_tokens": options.get("output_tokens"),
        "index": _word(options, "index", IndexKind),
        "policy": _word(options, "policy", Policy),
        "page_tokens": options.get("page_size"),
        "max_entries": options.get("max_entries"),
        "max_tokens": _length(options, "max_tokens"),
        "requests_per_s": options.get("rate"),
        "seed": options.get("seed"),
    }
    return PrefixAsk(**{name: value for name, value in given.items() if value is not None})


def _length(options: Mapping[str, Any], name: str) -> int | None:
    text = options.get(name)
    return None if text is None else tokens(text, f"--{name.replace('_', '-')}")


def _word(options: Mapping[str, Any], name: str, kind: type[_Word]) -> _Word | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        return kind(text.strip().lower())
    except ValueError:
        known = ", ".join(str(one) for one in kind)
        raise UsageError(f"{text!r} is not known", place=f"--{name}", hint=f"one of {known}") from None

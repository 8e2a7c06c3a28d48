"""A request from what a body left open and what it said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenline.request import Request, Sampling

_SAMPLING = frozenset(Sampling.__struct_fields__)


def request_from(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Request:
    """The request of flat names, of Request and of Sampling. None says nothing: then the default stands, and where
    there is none the engine's own."""
    said = {**defaults, **{name: value for name, value in given.items() if value is not None}}
    sampling = {name: said.pop(name) for name in _SAMPLING & said.keys()}
    return Request(sampling=Sampling(**sampling), **said)

"""A request from flat names, as Python callers give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tokenline.errors import RequestError
from tokenline.request.request import LoopDetection, Request
from tokenline.request.sampling import Sampling

_SAMPLING_FIELDS = frozenset(Sampling.__struct_fields__)
_REQUEST_FIELDS = frozenset(Request.__struct_fields__) - {"sampling"}


def request_of(prompt: str | Sequence[int] | None = None, **params: Any) -> Request:
    """A request from flat names: the fields of Request and of Sampling. RequestError for an unknown name."""
    unknown = sorted(set(params) - _SAMPLING_FIELDS - _REQUEST_FIELDS)
    if unknown:
        raise RequestError(f"there is no parameter {unknown[0]!r}", "check its spelling", param=unknown[0])
    sampling = {name: params.pop(name) for name in sorted(_SAMPLING_FIELDS & set(params))}
    if isinstance(prompt, str):
        params["prompt"] = prompt
    elif prompt is not None:
        params["prompt_token_ids"] = [int(token) for token in prompt]
    if isinstance(params.get("stop"), str):
        params["stop"] = [params["stop"]]
    if params.get("loop_detection") is True:
        params["loop_detection"] = LoopDetection()
    try:
        return msgspec.convert({**params, "sampling": sampling}, Request, from_attributes=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").removeprefix("sampling.")
        raise RequestError(
            f"{name or 'a parameter'}: {message}", "check its type", param=name or None
        ) from error

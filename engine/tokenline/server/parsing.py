"""A body from JSON to its struct; anything that is not known is a 400 that names the field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from tokenline.errors import RequestError

Body = TypeVar("Body", bound=msgspec.Struct)
_PATH = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_NAMED = re.compile(r"Object (?:contains unknown|missing required) field `(?P<name>[^`]*)`")


def parse(data: bytes, kind: type[Body]) -> Body:
    """The body, or RequestError: not JSON, or which field is wrong and how."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _refused(error, "") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON ({error})", "send a JSON object") from None


def renamed(error: RequestError, names: Sequence[tuple[re.Pattern[str], str]]) -> RequestError:
    """An error of a request under the names that an API has for its fields: patterns, each with what stands for it."""
    what, param = error.what, error.param
    if param is None:
        return error
    for ours, theirs in names:
        what, param = ours.sub(theirs, what), ours.sub(theirs, param)
    return type(error)(what, error.mend, param=param)


def typed(value: Any, kind: Any, path: str) -> Any:
    """A part of a body as its struct, or RequestError that names the field below `path`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refused(error, path) from None


def _refused(error: msgspec.ValidationError, root: str) -> RequestError:
    found = _PATH.fullmatch(str(error))
    what, path = (found["what"], found["path"] or "") if found else (str(error), "")
    path = f"{root}.{path}".strip(".") if not path.startswith("[") else root + path
    if named := _NAMED.fullmatch(what):
        path = f"{path}.{named['name']}" if path else named["name"]
    return RequestError(f"{path or 'the body'}: {what}", "see the API's documentation", param=path or None)

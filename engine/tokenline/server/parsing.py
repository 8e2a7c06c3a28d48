"""A body from JSON to its struct; anything that is not known is a 400 that names the field."""

from __future__ import annotations

import re
from typing import TypeVar

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
        found = _PATH.fullmatch(str(error))
        what, path = (found["what"], found["path"]) if found else (str(error), None)
        if named := _NAMED.fullmatch(what):
            path = f"{path}.{named['name']}" if path else named["name"]
        name = path or "the body"
        raise RequestError(f"{name}: {what}", "see the API's documentation", param=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON ({error})", "send a JSON object") from None

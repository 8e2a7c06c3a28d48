"""Functions that a model may call, as OpenAI's API spells them."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def function_fault(tool: object) -> tuple[str, str, str] | None:
    """(path, what, mend) of what is wrong with a tool, None where nothing is."""
    if not isinstance(tool, dict):
        return "", "is no object", "write a list of objects"
    if tool.get("type") != "function":
        return ".type", f"is {tool.get('type')!r}", 'only "function" is known'
    function = tool.get("function")
    if not isinstance(function, dict):
        return ".function", "is no object", "give it a name and parameters"
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return ".function.name", f"is {name!r}", "use 1 to 64 letters, digits, _ and -"
    parameters = function.get("parameters")
    if parameters is not None and (
        not isinstance(parameters, dict) or parameters.get("type", "object") != "object"
    ):
        return ".function.parameters", "is no schema of an object", 'give a JSON schema with "type": "object"'
    if not isinstance(function.get("strict"), bool | None):
        return ".function.strict", f"is {function['strict']!r}", "use true or false"
    return None


def named_tool(choice: object) -> str | None:
    """The name in a `tool_choice` object, None in one of another shape."""
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    return None

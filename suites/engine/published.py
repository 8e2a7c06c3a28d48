"""What the vendors publish of their APIs, and whether a value is what it says."""

from __future__ import annotations

import functools
import importlib.resources
import json
from typing import Any

import jsonschema_rs


@functools.cache
def _description(name: str) -> dict[str, Any]:
    text = (importlib.resources.files("llm_comply") / "specs" / f"{name}.json").read_text(encoding="utf-8")
    return _nullable(json.loads(text))


def _nullable(part: Any) -> Any:
    """OpenAPI 3.0 words null as `nullable`, JSON Schema as a type of its own."""
    if isinstance(part, list):
        return [_nullable(item) for item in part]
    if not isinstance(part, dict):
        return part
    read = {key: _nullable(value) for key, value in part.items() if key != "nullable"}
    return {"anyOf": [read, {"type": "null"}]} if part.get("nullable") is True else read


@functools.cache
def _validator(description: str, schema: str) -> Any:
    components = _description(description)["components"]
    assert schema in components["schemas"], schema
    root = {"$ref": f"#/components/schemas/{schema}", "components": components}
    return jsonschema_rs.validator_for(root)


def named_events(text: str) -> list[dict[str, Any]]:
    """The events of a streamed answer, each of which is sent under the name that its own type is."""
    *sent, rest = text.split("\n\n")
    assert rest == ""
    events = []
    for lines in sent:
        name, _, data = lines.partition("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def faults(description: str, schema: str, value: Any) -> list[str]:
    """Where a value is not what is published under this name, of "openai_chat", "anthropic" or "openresponses"."""
    found = _validator(description, schema).iter_errors(value)
    return [f"{'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]

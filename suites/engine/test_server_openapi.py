"""The server's own description of itself, tried at random: no failure, and no answer that it does not describe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import serving

from tokenline.client import Model
from tokenline.server.app import application, described_api
from tokenline.server.endpoint import Live
from tokenline.server.settings import ServerSettings

# Operations share about twenty seconds.
EXAMPLES = 40
NAME = "tiny-llama"


@pytest.fixture(scope="module")
def described(tiny_checkpoint: Path) -> Iterator[Any]:
    """A server whose context is short, so that no answer is long."""
    with (
        Model(str(tiny_checkpoint), backend="torch", dtype="float32", threads=1, context_length=64) as model,
        serving(model) as url,
    ):
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


OPERATIONS = [(path, method) for path, methods in described_api()["paths"].items() for method in methods]
HI = [{"role": "user", "content": "hi"}]
# One body that is answered for every path that takes one.
PLAIN: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hi", "max_tokens": 3, "logprobs": 1, "n": 2},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 3, "logprobs": True, "top_logprobs": 2},
    "/v1/messages": {"model": NAME, "messages": HI, "max_tokens": 3},
    "/v1/messages/count_tokens": {"model": NAME, "messages": HI},
    "/v1/responses": {"model": NAME, "input": "hi", "max_output_tokens": 3},
    "/v1/embeddings": {"input": ["hi", "ho"]},
    "/tokenize": {"content": "hi 日", "with_pieces": True},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {"messages": HI},
}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_whatever_is_sent_the_answer_is_a_described_one(described: Any, path: str, method: str) -> None:
    strategy = described[path][method].as_strategy() | described[path][method].as_strategy(
        generation_mode=GenerationMode.NEGATIVE
    )

    @given(case=strategy)
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @seed(7)
    def tried(case: Any) -> None:
        _made_likely(case)
        case.call_and_validate(checks=CHECKS)

    tried()


@pytest.mark.parametrize("path", PLAIN)
def test_a_plain_body_is_answered_as_described(described: Any, path: str) -> None:
    case = described[path]["post"].Case(body=PLAIN[path], media_type="application/json")
    assert case.call_and_validate(checks=CHECKS).status_code == 200


def _made_likely(case: Any) -> None:
    """What no schema says: the name of the model that is here, and a bound that leaves room in the context."""
    if "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = NAME
    if not isinstance(case.body, dict):
        return
    if isinstance(case.body.get("model"), str):
        case.body["model"] = NAME
    if isinstance(case.body.get("max_tokens"), int):
        case.body["max_tokens"] = 3


def test_the_description_is_openapi(described: Any) -> None:
    """Held to the schema of OpenAPI 3.1 that schemathesis brings, and every part that is referred to is there."""
    described.validate()
    document = described.raw_schema
    assert {
        path for path, methods in document["paths"].items() if "requestBody" in methods.get("post", {})
    } == set(PLAIN)
    for reference in set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))):
        assert reference in document["components"]["schemas"]


def test_every_route_is_described(described: Any, tiny_torch: Model) -> None:
    served = application(tiny_torch, ServerSettings(), Live())
    paths = {route.path.replace(":path", "") for route in served.routes}  # type: ignore[attr-defined]
    assert paths - {"/openapi.json"} == set(described.raw_schema["paths"])

"""What a client asks that cannot be: told as the client's own error, before or within the answer."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from serving import serving

from tokenline.client import Model
from tokenline.errors import RequestError
from tokenline.server.settings import ServerSettings


def asked(url: str, path: str = "/v1/completions", **body: Any) -> httpx.Response:
    return httpx.post(f"{url}{path}", json={"prompt": "Hello", "max_tokens": 8, **body}, timeout=60)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"allowed_tokens": [5], "banned_tokens": [5]}, "allowed_tokens"),
        ({"choice": ["aa"], "allowed_tokens": [98]}, "allowed_tokens"),
        ({"regex": "[0-9]+", "allowed_tokens": [97]}, "allowed_tokens"),
        ({"json_object": True, "allowed_tokens": [97]}, "allowed_tokens"),
        ({"json_schema": {"$ref": "#"}}, "json_schema"),
        ({"regex": r"[^\s\S]"}, "regex"),
        ({"xtc_threshold": 1e-320}, "xtc_threshold"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"stop": ["x" * 1025]}, "stop"),
        ({"dry_breakers": ["x"] * 65}, "dry_breakers"),
    ],
)
def test_what_nothing_meets_is_refused_by_its_field(
    served_url: str, given: dict[str, Any], param: str
) -> None:
    answer = asked(served_url, **given)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["param"] == param


def test_a_vocabulary_that_is_banned_whole_is_refused(tiny_torch: Model) -> None:
    with pytest.raises(RequestError, match="banned_tokens leaves no token to begin with"):
        tiny_torch.generate("a", banned_tokens=list(range(tiny_torch.vocabulary_size)))


@pytest.mark.parametrize("stream", [False, True])
def test_a_constraint_and_a_list_that_meet_in_the_middle(
    served_url: str, tiny_torch: Model, stream: bool
) -> None:
    """The first character may be drawn and the second may not: the answer had begun, and it is the client's error."""
    [second] = tiny_torch.tokenizer.encode("c", add_bos=False)
    answer = asked(served_url, choice=["bc"], banned_tokens=[second], stream=stream)
    told = answer.text
    assert "what choice asks for leaves no token to go on with" in told
    assert "invalid_request_error" in told
    assert answer.status_code == (200 if stream else 400)


def test_pages_of_other_origins_may_not_ask(tiny_torch: Model) -> None:
    with serving(tiny_torch, ServerSettings(cors_origins=("https://here.example",))) as url:

        def status(origin: str | None, path: str = "/v1/completions") -> int:
            headers = {} if origin is None else {"Origin": origin}
            body = {"prompt": "Hello", "max_tokens": 1}
            return httpx.post(f"{url}{path}", json=body, headers=headers).status_code

        assert status("http://evil.example") == 403
        assert status("null") == 403
        assert status("http://evil.example", "/reset_prompt_cache") == 403
        assert status("https://here.example") == status(url) == status(None) == 200
        preflight = httpx.options(
            f"{url}/v1/completions",
            headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"},
        )
        assert (preflight.status_code, preflight.json()["error"]["code"]) == (403, "origin_not_allowed")


def test_as_many_are_taken_as_can_run_and_wait(tiny_checkpoint: Any) -> None:
    with (
        Model(str(tiny_checkpoint), backend="torch", threads=1, parallel=2, max_queue=3) as model,
        serving(model) as url,
    ):
        assert len(asked(url, n=5).json()["choices"]) == 5
        refused = asked(url, n=6)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")
        assert "5 can run or wait here" in refused.text


@pytest.mark.parametrize("threads", [0, 100_000, 2**31])
@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_threads_that_no_machine_has_are_refused(tiny_checkpoint: Any, backend: str, threads: int) -> None:
    from tokenline.errors import BackendError

    with pytest.raises(BackendError, match="use 1 to 1024"):
        Model(str(tiny_checkpoint), backend=backend, threads=threads)


def test_what_clients_send_to_every_server_is_taken(served_url: str, tiny_torch: Model) -> None:
    habits = {
        "store": False, "metadata": {"a": "b"}, "service_tier": "auto", "safety_identifier": "x",
        "prompt_cache_key": "y", "modalities": ["text"],
    }  # fmt: skip
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, **habits}
    assert httpx.post(f"{served_url}/v1/chat/completions", json=body).status_code == 200
    told = httpx.post(f"{served_url}/v1/chat/completions", json={**body, "store": True})
    assert (told.status_code, told.json()["error"]["param"]) == (400, "store")

"""An OpenAI-compatible server, ours or any, streamed or not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import msgspec
import numpy as np

from paritygate.arms.answer import stream_of
from paritygate.arms.base import ArmError, Capabilities
from paritygate.arms.command import tokenline_program
from paritygate.arms.server_process import ServerProcess
from paritygate.arms.together import together
from paritygate.case import Case
from paritygate.stream import Stream, Usage


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an arm of kind `http`.

    `url` names a server that runs already; without it one is started: `command` (its words may hold {model} and
    {port}), or `tokenline serve` with `backend`, `dtype` and `threads`. `details` asks for tokenline's extension
    fields; turn it off for a server that refuses fields it does not know.
    """

    url: str = ""
    command: tuple[str, ...] = ()
    ready: str = "/health"
    served_model: str = ""
    streamed: bool = False
    details: bool = True
    backend: str = "auto"
    dtype: str = "float32"
    threads: int = 1
    cache_bytes: int | None = None
    timeout_s: float = 120.0


class HttpArm:
    """Asks a server that it starts and stops itself, or one by URL."""

    Options: ClassVar[type[msgspec.Struct]] = HttpOptions
    in_process: ClassVar[bool] = False

    def __init__(self, name: str, options: HttpOptions, model: str) -> None:
        self.name = name
        self.options = options
        self.model = model
        self.capabilities = Capabilities(
            token_ids=options.details,
            cached_tokens=True,
            prefill_pieces=options.details,
            streamed=options.streamed,
            batches=True,
            aborts=options.streamed and options.details,
            tells_cache=options.details,
            resets=not (options.url or options.command),
        )
        self._server: ServerProcess | None = None
        self._asked = 0

    def open(self) -> None:
        if self.options.url or self._server is not None:
            return
        options, model = self.options, self.model
        own = [tokenline_program(), "serve", "-m", model, "--host", "127.0.0.1", "--port", "{port}"]
        own += ["--backend", options.backend, "--dtype", options.dtype, "--threads", str(options.threads)]
        own += [] if options.cache_bytes is None else ["--cache-bytes", str(options.cache_bytes)]
        words = [word.replace("{model}", model) for word in options.command] or own
        self._server = ServerProcess(words, ready=options.ready, timeout_s=options.timeout_s)
        self._asked = 0

    def _body(self, case: Case) -> tuple[str, dict[str, Any]]:
        given = {k: v for k, v in case.sampler.given().items()}
        body: dict[str, Any] = {"max_tokens": case.max_tokens, **given}
        if self.options.served_model:
            body["model"] = self.options.served_model
        if case.stop:
            body["stop"] = list(case.stop)
        if case.ignore_eos:
            body["ignore_eos"] = True
        if self.options.details:
            body["return_details"] = True
        if self.options.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if case.messages is not None:
            return "/v1/chat/completions", body | {
                "messages": [{"role": m.role, "content": m.content} for m in case.messages]
            }
        prompt = case.prompt if case.prompt_token_ids is None else list(case.prompt_token_ids)
        return "/v1/completions", body | {"prompt": prompt}

    @property
    def _url(self) -> str:
        return self.options.url.rstrip("/") or (self._server.url if self._server else "")

    def generate(self, case: Case) -> Stream:
        if self._server is None and not self.options.url:
            raise ArmError(f"arm {self.name}: its server is not running")
        path, body = self._body(case)
        url = self._url + path
        self._asked += 1
        limit = httpx.Timeout(self.options.timeout_s)
        started = time.perf_counter_ns()
        try:
            with httpx.stream("POST", url, json=body, timeout=limit) as response:
                if response.status_code != 200:
                    printed = response.read().decode(errors="replace")
                    raise ArmError(f"arm {self.name}, case {case.name}: HTTP {response.status_code}", printed)
                if self.options.streamed:
                    return self._streamed(case, response, started)
                return self._whole(case, response.read())
        except httpx.TimeoutException as error:
            what = f"arm {self.name}, case {case.name}: the server hung for {self.options.timeout_s:g} s"
            raise ArmError(what, self._server.said() if self._server else "") from error
        except httpx.HTTPError as error:
            printed = self._server.said() if self._server else ""
            raise ArmError(f"arm {self.name}, case {case.name}: {url}: {error}", printed) from error

    def _whole(self, case: Case, raw: bytes) -> Stream:
        try:
            answer = json.loads(raw)
            choice = answer["choices"][0]
            text = choice["message"]["content"] if case.messages is not None else choice["text"]
            return self._stream(case, text, choice, answer.get("usage"), None, None)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise self._garbage(case, raw.decode(errors="replace"), error) from error

    def _events(self, case: Case, response: httpx.Response) -> Iterator[dict[str, Any]]:
        for line in response.iter_lines():
            if not line.startswith("data:"):
                continue
            payload = line.removeprefix("data:").strip()
            if payload == "[DONE]":
                return
            try:
                event = json.loads(payload)
            except ValueError as error:
                raise self._garbage(case, line, error) from error
            if "error" in event:
                raise ArmError(f"arm {self.name}, case {case.name}: the stream failed", str(event["error"]))
            yield event
        raise ArmError(f"arm {self.name}, case {case.name}: the stream broke off before [DONE]")

    def _streamed(self, case: Case, response: httpx.Response, started: int) -> Stream:
        chunks: list[str] = []
        arrivals: list[int] = []
        last: dict[str, Any] = {}
        usage: dict[str, Any] | None = None
        for event in self._events(case, response):
            usage = event.get("usage") or usage
            for choice in event.get("choices", ()):
                delta = (
                    choice.get("delta", {}).get("content")
                    if case.messages is not None
                    else choice.get("text")
                )
                if delta:
                    chunks.append(delta)
                    arrivals.append(time.perf_counter_ns() - started)
                last |= {key: value for key, value in choice.items() if value is not None}
        try:
            return self._stream(case, "".join(chunks), last, usage, chunks, arrivals)
        except (KeyError, TypeError) as error:
            raise self._garbage(case, str(last), error) from error

    def _garbage(self, case: Case, printed: str, error: Exception) -> ArmError:
        return ArmError(
            f"arm {self.name}, case {case.name}: what it sent is not an answer ({error!r})", printed
        )

    def _stream(
        self,
        case: Case,
        text: str,
        choice: dict[str, Any],
        usage: dict[str, Any] | None,
        chunks: list[str] | None,
        arrivals: list[int] | None,
    ) -> Stream:
        counted = None
        if usage is not None:
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            totals = {key: usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
            counted = Usage(**totals, cached_tokens=cached)
        if not self.options.details:
            return Stream(
                case=case.name,
                arm=self.name,
                text=text,
                arrivals_ns=None if arrivals is None else tuple(arrivals),
                finish_reason=choice["finish_reason"],
                usage=counted,
            )
        details = choice["details"]
        if counted is None:
            raise KeyError("usage")
        result = {
            **details,
            "text": text,
            "logprobs": None,
            "finish_reason": choice["finish_reason"],
            "usage": msgspec.to_builtins(counted),
        }
        return stream_of(result, case=case.name, arm=self.name, chunks=chunks, arrivals_ns=arrivals)

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        self.reset()
        return tuple(self.generate(case) for _ in range(times))

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        return together(self.generate, cases)

    def abort(self, case: Case) -> None:
        path, body = self._body(case)
        self._asked += 1
        try:
            with httpx.stream("POST", self._url + path, json=body, timeout=self.options.timeout_s) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise ArmError(
                        f"arm {self.name}, case {case.name}: HTTP {answer.status_code}", answer.text
                    )
                next(answer.iter_bytes(), b"")
        except httpx.HTTPError as error:
            raise ArmError(f"arm {self.name}, case {case.name}: {error}") from error

    def running(self) -> int:
        told = self._health()
        return int(told["running"]) + int(told["queued"])

    def cache_bytes(self) -> int:
        return int(self._health()["prompt_cache"]["bytes"])

    def _health(self) -> dict[str, Any]:
        """What our own server's /health tells."""
        try:
            told = httpx.get(self._url + "/health", timeout=self.options.timeout_s).json()
            return {name: told[name] for name in ("running", "queued", "prompt_cache")}
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ArmError(f"arm {self.name}: /health does not tell what the engine holds") from error

    def reset(self) -> None:
        if self._asked == 0:
            return
        if self.options.url:
            raise ArmError(f"arm {self.name}: a server that runs already cannot be made to forget")
        if self.capabilities.resets:
            self._forget()
            return
        self.close()
        self.open()

    def _forget(self) -> None:
        """Ask our own server to drop what it remembers; any other is started anew."""
        try:
            httpx.post(self._url + "/reset_prompt_cache", timeout=self.options.timeout_s).raise_for_status()
        except httpx.HTTPError as error:
            raise ArmError(f"arm {self.name}: it cannot be made to forget: {error}") from error

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        raise ArmError(f"arm {self.name}: a server gives no logits")

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

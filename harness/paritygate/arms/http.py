"""An OpenAI-compatible server, ours or any, streamed or not."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import msgspec
import numpy as np

from paritygate.arms.answer import stream_of
from paritygate.arms.base import ArmError, Capabilities, RowFailed, StartsPrograms
from paritygate.arms.command import tokenline_program
from paritygate.arms.dialects import DIALECTS, logprob_fields, sampler_fields
from paritygate.arms.http_options import HttpOptions
from paritygate.arms.openai_answer import Gathered, ending_of, positions_of
from paritygate.arms.server_process import ServerProcess
from paritygate.arms.together import together
from paritygate.arms.written_answer import chunk_ends_of
from paritygate.case import Case
from paritygate.stream import Position, Stream


class HttpArm(StartsPrograms):
    """Asks a server that it starts and stops itself, or one by URL."""

    Options: ClassVar[type[msgspec.Struct]] = HttpOptions
    in_process: ClassVar[bool] = False

    def __init__(self, name: str, options: HttpOptions, model: str) -> None:
        self.name = name
        self.options = options
        self.model = model
        self._dialect = DIALECTS[options.speaks]
        told = not options.streamed or self._dialect.streams_logprobs
        self.capabilities = Capabilities(
            token_ids=options.tells_details or (self._dialect.tells_ids and told),
            logprobs=told,
            cached_tokens=True,
            prefill_pieces=options.tells_details,
            streamed=options.streamed,
            forgets=not options.url,
            seeds="seed" in self._dialect.fields,
            batches=True,
            aborts=options.streamed and options.tells_details,
            tells_cache=options.tells_details,
            resets=options.tells_details and not (options.url or options.command),
        )
        self._server: ServerProcess | None = None
        self._asked = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What its manifests will say of how it computes; a server that is not ours tells none."""
        return self.options.settings

    def open(self) -> None:
        if self.options.api_key_env and self.options.api_key_env not in os.environ:
            raise ArmError(
                f"arm {self.name}: the environment variable {self.options.api_key_env}, which api_key_env names, "
                "is not set"
            )
        if self.options.url or self._server is not None:
            return
        options, model = self.options, self.model
        own = [tokenline_program(), "serve", "-m", model, "--host", "127.0.0.1", "--port", "{port}"]
        own += ["--backend", options.backend, "--dtype", options.dtype, "--threads", str(options.threads)]
        own += [] if options.cache_bytes is None else ["--cache-bytes", str(options.cache_bytes)]
        words = [word.replace("{model}", model) for word in options.command] or own
        self._server = ServerProcess(words, ready=options.ready, timeout_s=options.timeout_s, cwd=self.folder)
        self._asked = 0

    def _body(self, case: Case) -> tuple[str, dict[str, Any]]:
        options = self.options
        body: dict[str, Any] = {
            "max_tokens": case.max_tokens,
            **sampler_fields(self.name, case, options.speaks),
        }
        body |= logprob_fields(case, options.speaks, streamed=options.streamed) | self._dialect.asks
        if options.served_model:
            body["model"] = options.served_model
        if case.stop:
            body["stop"] = list(case.stop)
        if options.tells_details:
            body["return_details"] = True
        if options.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if case.messages is not None:
            path = "/v1/chat/completions"
            body["messages"] = msgspec.to_builtins(case.messages)
        else:
            path = "/v1/completions"
            body["prompt"] = case.prompt if case.prompt_token_ids is None else list(case.prompt_token_ids)
            if case.prompt_token_ids is not None and not self._dialect.takes_ids:
                what = f"a server of dialect {options.speaks!r} takes no token ids as a prompt"
                raise ArmError(f"arm {self.name}, case {case.name}: {what}: leave this case out")
        if twice := sorted(set(body) & set(options.extra)):
            what = f"`extra` sets {', '.join(twice)}, which the case sets already: leave it out of `extra`"
            raise ArmError(f"arm {self.name}, case {case.name}: {what}")
        return path, body | options.extra

    def _place(self) -> str:
        url = self.options.url.rstrip("/") or (self._server.url if self._server else "")
        return url.removesuffix("/v1")

    def _headers(self) -> dict[str, str]:
        key = self.options.api_key_env
        return {"Authorization": f"Bearer {os.environ.get(key, '')}"} if key else {}

    @contextlib.contextmanager
    def _answering(self, case: Case) -> Iterator[httpx.Response]:
        """The server's answer while it comes. Raises ArmError, also for what goes wrong while it is read."""
        if self._server is None and not self.options.url:
            raise ArmError(f"arm {self.name}: its server is not running")
        path, body = self._body(case)
        url, who = self._place() + path, f"arm {self.name}, case {case.name}"
        self._asked += 1
        limit = httpx.Timeout(self.options.timeout_s)
        try:
            with httpx.stream("POST", url, json=body, timeout=limit, headers=self._headers()) as response:
                if response.status_code != 200:
                    printed = response.read().decode(errors="replace")
                    # A request that is refused is the setup's; one that was taken, and failed, is the engine's.
                    kind = RowFailed if response.status_code >= 500 else ArmError
                    raise kind(f"{who}: HTTP {response.status_code}", printed)
                yield response
        except httpx.TimeoutException as error:
            what = f"{who}: the server hung for {self.options.timeout_s:g} s"
            raise ArmError(what, self._said()) from error
        except httpx.ConnectError as error:
            what = f"arm {self.name}: no server answers at {self._place()} ({error}): start it, or mend `url`"
            raise ArmError(what, self._said()) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ArmError(f"{who}: {url}: {error}", self._said()) from error

    def _said(self) -> str:
        return self._server.said() if self._server else ""

    def generate(self, case: Case) -> Stream:
        started = time.perf_counter_ns()
        with self._answering(case) as response:
            return self._read(case, response, started)

    def _read(self, case: Case, response: httpx.Response, started: int) -> Stream:
        gathered = Gathered()
        last: Any = None
        try:
            if self.options.streamed:
                for last in self._events(case, response):
                    gathered.add(last, time.perf_counter_ns() - started)
            else:
                last = response.read().decode(errors="replace")
                gathered.add(json.loads(last), time.perf_counter_ns() - started)
            return self._stream(case, gathered)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise self._garbage(case, str(last), error) from error

    def _events(self, case: Case, response: httpx.Response) -> Iterator[dict[str, Any]]:
        for line in response.iter_lines():
            if not line.startswith("data:"):
                continue
            payload = line.removeprefix("data:").strip()
            if payload == "[DONE]":
                return
            try:
                event = json.loads(payload)
            except (ValueError, RecursionError) as error:
                raise self._garbage(case, line, error) from error
            if "error" in event:
                raise RowFailed(f"arm {self.name}, case {case.name}: the stream failed", str(event["error"]))
            yield event
        raise ArmError(f"arm {self.name}, case {case.name}: the stream broke off before [DONE]")

    def _garbage(self, case: Case, printed: str, error: Exception) -> ArmError:
        return ArmError(
            f"arm {self.name}, case {case.name}: what it sent is not an answer ({error!r})", printed
        )

    def _stream(self, case: Case, gathered: Gathered) -> Stream:
        streamed = self.options.streamed
        if gathered.finish_reason is None:
            raise KeyError("finish_reason")
        ending = ending_of(gathered, case, self._dialect)

        def told(token_ids: tuple[int, ...] | None) -> tuple[Position, ...] | None:
            if case.logprobs is None:
                return None
            return positions_of(gathered.entries, token_ids, case.logprobs, self._dialect) or None

        if self.options.tells_details:
            if gathered.details is None or ending.usage is None:
                raise KeyError("usage" if gathered.details is not None else "details")
            result = {
                **gathered.details,
                "text": gathered.text,
                "logprobs": None,
                "finish_reason": gathered.finish_reason,
                "usage": msgspec.to_builtins(ending.usage),
            }
            stream = stream_of(
                result,
                case=case.name,
                arm=self.name,
                chunks=gathered.texts if streamed else None,
                arrivals_ns=gathered.arrivals if streamed else None,
            )
            return msgspec.structs.replace(stream, positions=told(stream.token_ids))
        text = gathered.text
        return Stream(
            case=case.name,
            arm=self.name,
            text=text,
            prompt_token_ids=None if gathered.prompt_token_ids is None else tuple(gathered.prompt_token_ids),
            token_ids=ending.token_ids,
            positions=told(ending.token_ids),
            chunk_ends=chunk_ends_of(gathered.texts, text) if streamed else None,
            arrivals_ns=tuple(gathered.arrivals) if streamed else None,
            finish_reason=gathered.finish_reason,
            finish_cause=ending.cause if self.options.speaks != "openai" else None,
            usage=ending.usage,
            counters=dict(ending.reported),
        )

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        self.reset()
        return tuple(self.generate(case) for _ in range(times))

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        return together(self.generate, cases)

    def abort(self, case: Case) -> None:
        with self._answering(case) as response:
            next(response.iter_bytes(), b"")

    def running(self) -> int:
        told = self._health()
        return int(told["running"]) + int(told["queued"])

    def cache_bytes(self) -> int:
        return int(self._health()["prompt_cache"]["bytes"])

    def _health(self) -> dict[str, Any]:
        """What our own server's /health tells."""
        try:
            told = httpx.get(
                self._place() + "/health", timeout=self.options.timeout_s, headers=self._headers()
            ).json()
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
        """Ask our own server to drop what it remembers."""
        url = self._place() + "/reset_prompt_cache"
        try:
            httpx.post(url, timeout=self.options.timeout_s, headers=self._headers()).raise_for_status()
        except httpx.HTTPError as error:
            raise ArmError(f"arm {self.name}: it cannot be made to forget: {error}") from error

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        raise ArmError(f"arm {self.name}: a server gives no logits")

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

"""tokenline loaded into this process through its public names."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import msgspec
import numpy as np

from paritygate.arms.answer import stream_of
from paritygate.arms.base import ArmError, Capabilities
from paritygate.arms.own_settings import own_settings
from paritygate.arms.together import together
from paritygate.case import Case
from paritygate.quantities import Bytes, Seconds, Threads
from paritygate.stream import Stream


class TokenlineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an arm of kind `tokenline`."""

    backend: str
    dtype: str = "float32"
    threads: Threads = 1
    cache_bytes: Bytes | None = None
    timeout_s: Seconds = 240.0


def parameters(case: Case) -> dict[str, Any]:
    """A case in tokenline's own parameter names."""
    given: dict[str, Any] = {"max_tokens": case.max_tokens, "logprobs": case.logprobs, **case.sampler.given()}
    if case.stop:
        given["stop"] = case.stop
    if case.ignore_eos:
        given["ignore_eos"] = True
    if case.constraint is not None:
        given |= case.constraint.given()
    if case.messages is not None:
        given["messages"] = msgspec.to_builtins(case.messages)
    return given


class TokenlineArm:
    """The engine through `tokenline.load`; answers are streamed, so that the pieces of the text are seen too."""

    Options: ClassVar[type[msgspec.Struct]] = TokenlineOptions
    in_process: ClassVar[bool] = True
    capabilities = Capabilities(
        token_ids=True,
        logprobs=True,
        teacher_forcing=True,
        raw_logits=True,
        cached_tokens=True,
        prefill_pieces=True,
        streamed=True,
        resets=True,
        batches=True,
        aborts=True,
        tells_cache=True,
        forgets=True,
        seeds=True,
        pieces=True,
        layer_taps=True,
    )

    def __init__(self, name: str, options: TokenlineOptions, model: str) -> None:
        self.name = name
        self.options = options
        self.model = model
        self._model: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """What its manifests will say of how it computes."""
        return own_settings(self.options.backend, self.options.dtype, self.options.threads)

    def open(self) -> None:
        # Heavy: brings the array library. Only the process that hosts this arm pays for it.
        import tokenline
        from tokenline.errors import TokenlineError

        self._refusal = TokenlineError
        try:
            self._model = tokenline.load(
                self.model,
                backend=self.options.backend,
                dtype=self.options.dtype,
                threads=self.options.threads,
                **({} if self.options.cache_bytes is None else {"cache_bytes": self.options.cache_bytes}),
            )
        except TokenlineError as error:
            raise ArmError(f"arm {self.name}: {error}") from error

    def generate(self, case: Case) -> Stream:
        chunks: list[str] = []
        arrivals: list[int] = []
        result: dict[str, Any] | None = None
        prompt = case.prompt if case.prompt_token_ids is None else list(case.prompt_token_ids)
        started = time.perf_counter_ns()
        try:
            for event in self._model.stream(prompt, **parameters(case)):
                if event.text:
                    chunks.append(event.text)
                    arrivals.append(time.perf_counter_ns() - started)
                if event.result is not None:
                    result = event.result
        except self._refusal as error:
            raise ArmError(f"arm {self.name}, case {case.name}: {error}") from error
        if result is None:
            raise ArmError(f"arm {self.name}, case {case.name}: the stream ended without a result")
        # What a listener has read, not what the result repeats: a lost tail must be seen.
        result = {**result, "text": "".join(chunks)}
        return stream_of(result, case=case.name, arm=self.name, chunks=chunks, arrivals_ns=arrivals)

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        self.reset()
        return tuple(self.generate(case) for _ in range(times))

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        return together(self.generate, cases)

    def abort(self, case: Case) -> None:
        prompt = case.prompt if case.prompt_token_ids is None else list(case.prompt_token_ids)
        stream = self._model.stream(prompt, **parameters(case))
        next(stream)
        stream.close()

    def running(self) -> int:
        stats = self._model.stats()
        return stats["running"] + stats["queued"]

    def cache_bytes(self) -> int:
        return self._model.cache_stats()["bytes"]

    def reset(self) -> None:
        self._model.reset_cache()

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        return np.ascontiguousarray(self._model.logits(list(token_ids))[start:])

    def logits_in_pieces(self, token_ids: tuple[int, ...], start: int, size: int) -> tuple[np.ndarray, int]:
        before = self._model.teacher_forwards
        logits = self._model.logits(list(token_ids), size=size)
        return np.ascontiguousarray(logits[start:]), self._model.teacher_forwards - before

    def taps(self, token_ids: tuple[int, ...]) -> dict[str, np.ndarray]:
        try:
            return self._model.taps(list(token_ids))
        except (AttributeError, self._refusal) as error:
            # A revision from before there were taps, or a family without them.
            raise ArmError(f"arm {self.name}: this engine tells no layers: {error}") from error

    def close(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None

"""mlx-lm in process: its own `stream_generate`, its own detokenizer, one forward for teacher forcing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from paritygate.arms.base import ArmError, Capabilities
from paritygate.arms.hugging_face import (
    as_directory,
    checkpoint_at,
    load_tokenizer,
    versions_of,
    weights_hash,
)
from paritygate.arms.mlx_lm_model import load_mlx
from paritygate.arms.written_answer import (
    checked_prompt,
    cut_at_stop,
    position_of,
    refuse_unsaid,
    written_stream,
)
from paritygate.case import Case
from paritygate.quantities import Seconds, Threads
from paritygate.stream import Stream

LIBRARIES = ("mlx-lm", "mlx", "transformers", "tokenizers")
FIELDS = (
    "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "penalty_window",
    "seed",
)  # fmt: skip


class MlxLmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an arm of kind `mlx-lm`.

    MODEL is a Hugging Face directory; a .gguf file is converted once, through transformers, and kept in `converted`
    (below the user's cache unless given). `detokenizer` is the one that mlx-lm picks for the tokenizer, or the plain
    one that decodes all tokens again: the first may drop a space with which an answer starts.
    """

    detokenizer: Literal["own", "plain"] = "own"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: Threads = 1
    converted: str = ""
    timeout_s: Seconds = 240.0


class MlxLmArm:
    """Every answer starts with an empty cache, as `mlx_lm.generate` does."""

    Options: ClassVar[type[msgspec.Struct]] = MlxLmOptions
    in_process: ClassVar[bool] = True
    capabilities = Capabilities(
        token_ids=True,
        logprobs=True,
        teacher_forcing=True,
        raw_logits=True,
        streamed=True,
        resets=True,
        forgets=True,
        seeds=True,
    )

    def __init__(self, name: str, options: MlxLmOptions, model: str) -> None:
        self.name = name
        self.options = options
        self.model = model
        self._model: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """What its manifests will say of how it computes."""
        return {"backend": "mlx", "dtype": self.options.dtype, "threads": self.options.threads}

    def open(self) -> None:
        if self._model is not None:
            return
        path = checkpoint_at(self.model, self.name)
        try:
            kept = Path(self.options.converted).expanduser() if self.options.converted else None
            directory = as_directory(path, kept)
            self._model = load_mlx(directory, threads=self.options.threads, dtype=self.options.dtype)
            import mlx.core as mx
            from mlx_lm import stream_generate
            from mlx_lm.sample_utils import make_logits_processors, make_sampler
            from mlx_lm.tokenizer_utils import TokenizerWrapper
            from mlx_lm.tokenizer_utils import load as load_own_tokenizer
        except ImportError as error:
            raise ArmError(f"arm {self.name}: {error}: pip install mlx-lm torch") from error
        except (OSError, ValueError, KeyError) as error:
            raise ArmError(f"arm {self.name}: mlx-lm cannot read {self.model}: {error}") from error
        self._mx, self._stream_generate = mx, stream_generate
        self._make_sampler, self._make_processors = make_sampler, make_logits_processors
        self._tokenizer = load_tokenizer(directory)
        own = self.options.detokenizer == "own"
        self._wrapped = load_own_tokenizer(directory) if own else TokenizerWrapper(self._tokenizer)
        self._manifest = {
            "engine": "mlx-lm",
            **self.settings,
            "device": "gpu" if mx.default_device().type == mx.DeviceType.gpu else "cpu",
            "weights_hash": weights_hash(path),
            "libraries": versions_of(LIBRARIES),
            "logprobs": "after penalties",
            "detokenizer": type(self._wrapped.detokenizer).__name__,
            "stop_strings": "found by the arm: mlx_lm.stream_generate has none",
        }

    def _steps(self, case: Case, prompt: list[int]) -> Any:
        sampler = case.sampler
        window = sampler.penalty_window
        if window is not None and window < 0:
            window = len(prompt) + case.max_tokens
        size = 20 if window is None else window  # 20 is mlx-lm's own default
        if sampler.seed is not None:
            self._mx.random.seed(sampler.seed)
        return self._stream_generate(
            self._model,
            self._wrapped,
            prompt,
            max_tokens=case.max_tokens,
            sampler=self._make_sampler(
                temp=sampler.temperature,
                top_p=sampler.top_p or 0.0,
                min_p=sampler.min_p or 0.0,
                top_k=sampler.top_k or 0,
            ),
            logits_processors=self._make_processors(
                None,
                sampler.repetition_penalty,
                size,
                sampler.presence_penalty,
                size,
                sampler.frequency_penalty,
                size,
            ),
        )

    def generate(self, case: Case) -> Stream:
        refuse_unsaid(self.name, case, "mlx-lm", FIELDS)
        if self._model is None:
            raise ArmError(f"arm {self.name} is not open")
        prompt = checked_prompt(self.name, case, self._tokenizer, len(self._tokenizer))
        chunks: list[str] = []
        arrivals: list[int] = []
        drawn: list[int] = []
        positions = []
        text, cause = "", "Length"
        count = case.logprobs
        started = time.perf_counter_ns()
        for response in self._steps(case, prompt):
            drawn.append(int(response.token))
            if count is not None:
                row = np.array(response.logprobs.astype(self._mx.float32))
                positions.append(position_of(row, drawn[-1], count, self._spell))
            if response.text:
                chunks.append(response.text)
                arrivals.append(time.perf_counter_ns() - started)
                text += response.text
            if response.finish_reason == "stop":
                cause = "Eos"
                drawn.pop()
            elif (cut := cut_at_stop(text, case.stop)) is not None:
                text, cause = cut, "StopSequence"
                break
        return written_stream(
            self.name,
            case,
            prompt=prompt,
            token_ids=drawn,
            positions=None if count is None else positions,
            text=text,
            chunks=chunks,
            arrivals=arrivals,
            cause=cause,
            manifest=self._manifest,
        )

    def _spell(self, token_id: int) -> str:
        return self._tokenizer.decode([token_id])

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        return tuple(self.generate(case) for _ in range(times))

    def reset(self) -> None:
        """Nothing is remembered from one answer to the next."""

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        if self._model is None:
            raise ArmError(f"arm {self.name} is not open")
        logits = self._model(self._mx.array([list(token_ids)]))[0, start:]
        return np.ascontiguousarray(np.array(logits.astype(self._mx.float32)))

    def close(self) -> None:
        self._model = None

"""transformers in process: its own `generate`, its own streamer, one forward for teacher forcing."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from paritygate.arms.base import ArmError, Capabilities
from paritygate.arms.hugging_face import checkpoint_at, load_model, load_tokenizer, versions_of, weights_hash
from paritygate.arms.transformers_taps import taps_of
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

LIBRARIES = ("transformers", "torch", "tokenizers", "gguf")
# What `generate` can be told; its repetition penalty sees prompt and answer, and no window narrows it.
FIELDS = ("top_k", "top_p", "min_p", "repetition_penalty", "seed")


class TransformersOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an arm of kind `transformers`; MODEL is a Hugging Face directory or a .gguf file."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: Threads = 1
    timeout_s: Seconds = 240.0


class TransformersArm:
    """Every answer starts from nothing: transformers keeps no prompt cache between calls."""

    Options: ClassVar[type[msgspec.Struct]] = TransformersOptions
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
        layer_taps=True,
    )

    def __init__(self, name: str, options: TransformersOptions, model: str) -> None:
        self.name = name
        self.options = options
        self.model = model
        self._model: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """What its manifests will say of how it computes."""
        return {
            "backend": "torch",
            "device": "cpu",
            "dtype": self.options.dtype,
            "threads": self.options.threads,
        }

    def open(self) -> None:
        if self._model is not None:
            return
        path = checkpoint_at(self.model, self.name)
        try:
            # Heavy, and absent where only other engines are driven: imported in the process that hosts this arm.
            import torch
            from transformers import GenerationConfig, TextStreamer

            self._tokenizer = load_tokenizer(path)
            self._model = load_model(path, dtype=self.options.dtype, threads=self.options.threads)
        except ImportError as error:
            raise ArmError(
                f"arm {self.name}: {error}: pip install transformers torch accelerate gguf"
            ) from error
        except (OSError, ValueError, KeyError) as error:
            raise ArmError(f"arm {self.name}: transformers cannot read {self.model}: {error}") from error
        self._torch, self._config, self._streamer = torch, GenerationConfig, TextStreamer
        self._manifest = {
            "engine": "transformers",
            **self.settings,
            "weights_hash": weights_hash(path),
            "libraries": versions_of(LIBRARIES),
            "logprobs": "raw",
        }

    @property
    def _eos(self) -> list[int]:
        told = self._model.generation_config.eos_token_id
        told = told if told is not None else self._tokenizer.eos_token_id
        return list(told) if isinstance(told, list | tuple) else [int(told)]

    def _settings(self, case: Case) -> Any:
        sampler = case.sampler
        drawn = sampler.temperature > 0
        settings: dict[str, Any] = {
            "max_new_tokens": case.max_tokens,
            "do_sample": drawn,
            "eos_token_id": self._eos,
            "pad_token_id": self._eos[0],
            "output_logits": True,
            "return_dict_in_generate": True,
            "use_cache": True,
        }
        if drawn:
            # transformers defaults to the likeliest fifty; unless the case says so, nothing is left out.
            settings |= {"temperature": sampler.temperature, "top_k": 0, "top_p": 1.0}
            told = {name: getattr(sampler, name) for name in ("top_k", "top_p", "min_p")}
            settings |= {name: value for name, value in told.items() if value is not None}
        if sampler.repetition_penalty is not None:
            settings["repetition_penalty"] = sampler.repetition_penalty
        if case.stop:
            settings["stop_strings"] = list(case.stop)
        return self._config(**settings)

    def generate(self, case: Case) -> Stream:
        refuse_unsaid(self.name, case, "transformers' generate", FIELDS)
        if self._model is None:
            raise ArmError(f"arm {self.name} is not open")
        prompt = checked_prompt(self.name, case, self._tokenizer, self._model.config.vocab_size)
        chunks: list[str] = []
        arrivals: list[int] = []
        started = time.perf_counter_ns()

        class Heard(self._streamer):  # type: ignore[misc, name-defined]
            def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
                if text:
                    chunks.append(text)
                    arrivals.append(time.perf_counter_ns() - started)

        torch = self._torch
        if case.sampler.seed is not None:
            torch.manual_seed(case.sampler.seed)
        spelling = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        with torch.inference_mode():
            out = self._model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                generation_config=self._settings(case),
                tokenizer=self._tokenizer,
                streamer=Heard(self._tokenizer, skip_prompt=True, **spelling),
            )
        drawn = out.sequences[0, len(prompt) :].tolist()
        rows = [row[0].float().numpy() for row in out.logits]
        return self._stream(case, prompt, drawn, rows, chunks, arrivals)

    def _stream(
        self,
        case: Case,
        prompt: list[int],
        drawn: list[int],
        rows: list[np.ndarray],
        chunks: list[str],
        arrivals: list[int],
    ) -> Stream:
        text, cause = "".join(chunks), "Length"
        token_ids = drawn
        if drawn and drawn[-1] in self._eos:
            token_ids, cause = drawn[:-1], "Eos"
        elif (cut := cut_at_stop(text, case.stop)) is not None:
            text, cause = cut, "StopSequence"
        count = case.logprobs
        positions = None
        if count is not None:
            pairs = zip(rows, drawn, strict=True)
            positions = [position_of(row, token, count, self._spell) for row, token in pairs]
        return written_stream(
            self.name,
            case,
            prompt=prompt,
            token_ids=token_ids,
            positions=positions,
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
        with self._torch.inference_mode():
            out = self._model(
                self._torch.tensor([list(token_ids)]),
                use_cache=False,
                logits_to_keep=len(token_ids) - start,
            )
        return np.ascontiguousarray(out.logits[0].float().numpy())

    def taps(self, token_ids: tuple[int, ...]) -> dict[str, np.ndarray]:
        if self._model is None:
            raise ArmError(f"arm {self.name} is not open")
        try:
            with self._torch.inference_mode():
                return taps_of(self._model, self._torch.tensor([list(token_ids)]))
        except AttributeError as error:
            raise ArmError(f"arm {self.name}: this family names its blocks otherwise: {error}") from error

    def close(self) -> None:
        self._model = None

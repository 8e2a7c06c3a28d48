"""llama.cpp in process, through the prebuilt `xllamacpp`: the library is llama.cpp's server, asked in its own terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import httpx
import msgspec
import numpy as np

from paritygate.arms.base import ArmError, Capabilities, RowFailed
from paritygate.arms.dialects import sampler_fields
from paritygate.arms.hugging_face import checkpoint_at, versions_of, weights_hash
from paritygate.arms.written_answer import asked_of, refuse_nothing
from paritygate.case import Case
from paritygate.quantities import Seconds, Threads, Tokens
from paritygate.stream import Position, Stream, TopToken, Usage

CAUSES = {"eos": "Eos", "word": "StopSequence", "limit": "Length"}
# What a case leaves open changes nothing; llama.cpp's own defaults keep the likeliest forty, and so on.
NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}


class LlamaCppOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an arm of kind `llama.cpp`; MODEL is a .gguf file. `context_length` is in tokens.

    `flash_attention` and `cache_type` (of keys and values) are llama.cpp's own choice unless given: a float32 file
    with a float32 cache and flash attention off computes in float32 throughout.
    """

    threads: Threads = 1
    context_length: Tokens = 4096
    flash_attention: Literal["auto", "on", "off"] = "auto"
    cache_type: Literal["f16", "f32"] = "f16"
    timeout_s: Seconds = 240.0


class LlamaCppArm:
    """One slot, so that a row is alone. Its teacher-forced rows are log-softmax: the server tells no raw logits."""

    Options: ClassVar[type[msgspec.Struct]] = LlamaCppOptions
    in_process: ClassVar[bool] = True
    capabilities = Capabilities(
        token_ids=True,
        logprobs=True,
        teacher_forcing=True,
        cached_tokens=True,
        resets=True,
        forgets=True,
        seeds=True,
    )

    def __init__(self, name: str, options: LlamaCppOptions, model: str) -> None:
        self.name = name
        self.options = options
        self.model = model
        self._server: Any = None
        self._cold = True

    @property
    def settings(self) -> dict[str, Any]:
        """What its manifests will say of how it computes."""
        return {"backend": "ggml", "device": "cpu", "threads": self.options.threads}

    def open(self) -> None:
        if self._server is not None:
            return
        path = checkpoint_at(self.model, self.name)
        if path.is_dir():
            raise ArmError(
                f"arm {self.name}: llama.cpp reads .gguf files, {self.model} is a directory: convert it"
            )
        try:
            import xllamacpp
        except ImportError as error:
            raise ArmError(f"arm {self.name}: {error}: pip install xllamacpp") from error
        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx = self.options.context_length
        settings.n_parallel = 1
        settings.cache_ram_mib = 0  # states of earlier prompts would be taken up again behind a reset
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = self.options.threads
        settings.warmup = False
        flash, types = xllamacpp.llama_flash_attn_type, xllamacpp.ggml_type
        settings.flash_attn_type = {
            "auto": flash.LLAMA_FLASH_ATTN_TYPE_AUTO,
            "on": flash.LLAMA_FLASH_ATTN_TYPE_ENABLED,
            "off": flash.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        }[self.options.flash_attention]
        kept = types.GGML_TYPE_F32 if self.options.cache_type == "f32" else types.GGML_TYPE_F16
        settings.cache_type_k = settings.cache_type_v = kept
        try:
            self._server = xllamacpp.Server(settings)
        except (RuntimeError, ValueError) as error:
            raise ArmError(f"arm {self.name}: llama.cpp cannot load {self.model}: {error}") from error
        self._client = httpx.Client(
            base_url=self._server.listening_address,
            timeout=self.options.timeout_s,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),  # the server ends a connection that waits
        )
        props = self._client.get("/props").json()
        self._eos = self._ids(props["eos_token"], add_special=False)
        (self._letter,) = self._ids("a", add_special=False)
        self._cold = True
        self._manifest = {
            "engine": "llama.cpp",
            **self.settings,
            "dtype": props.get("model_ftype"),
            "weights_hash": weights_hash(path),
            "libraries": versions_of(("xllamacpp",)),
            "logprobs": "raw",
            "flash_attention": self.options.flash_attention,
            "cache_type": self.options.cache_type,
        }

    def _post(self, case: str, path: str, body: dict[str, Any]) -> Any:
        if self._server is None:
            raise ArmError(f"arm {self.name} is not open")
        try:
            answer = self._client.post(path, json=body)
        except httpx.HTTPError as error:
            raise ArmError(f"arm {self.name}, case {case}: {path}: {error}") from error
        if answer.status_code != 200:
            raise self._refused(case, answer.status_code, answer.text)
        return answer.json()

    def _refused(self, case: str, status: int, printed: str) -> ArmError:
        kind = RowFailed if status >= 500 else ArmError
        return kind(f"arm {self.name}, case {case}: llama.cpp answered {status}", printed)

    def _ids(self, text: str, *, add_special: bool = True) -> tuple[int, ...]:
        body = {"content": text, "add_special": add_special, "parse_special": True}
        return tuple(self._post("(tokenize)", "/tokenize", body)["tokens"])

    def _prompt(self, case: Case) -> tuple[int, ...]:
        if case.prompt_token_ids is not None:
            return case.prompt_token_ids
        if case.messages is None:
            return self._ids(case.prompt or "")
        messages = {"messages": msgspec.to_builtins(case.messages)}
        return self._ids(self._post(case.name, "/apply-template", messages)["prompt"])

    def generate(self, case: Case) -> Stream:
        if self._server is None:
            raise ArmError(f"arm {self.name} is not open")
        prompt = self._prompt(case)
        refuse_nothing(self.name, case, prompt)
        body = NEUTRAL | sampler_fields(self.name, self._within_context(case), "llama.cpp")
        body |= {"prompt": list(prompt), "n_predict": case.max_tokens, "stop": list(case.stop)}
        # Not streamed: an event tells the last of its tokens alone, so a character of several tokens would lose ids.
        # Two alternatives at least: a gap needs them, and the end-of-sequence position is told with them alone.
        body |= {"n_probs": max(case.logprobs or 0, 2), "return_tokens": True, "cache_prompt": not self._cold}
        answer = self._post(case.name, "/completion", body)
        self._cold = False
        if answer.get("stop_type") not in CAUSES:
            raise ArmError(f"arm {self.name}, case {case.name}: the answer has no end", str(answer))
        return self._stream(case, prompt, answer)

    def _within_context(self, case: Case) -> Case:
        """A penalty window without end is as long as the context."""
        sampler = case.sampler
        if sampler.penalty_window is None or sampler.penalty_window >= 0:
            return case
        bounded = msgspec.structs.replace(sampler, penalty_window=self.options.context_length)
        return msgspec.structs.replace(case, sampler=bounded)

    def _stream(self, case: Case, prompt: tuple[int, ...], answer: dict[str, Any]) -> Stream:
        cause, drawn = CAUSES[answer["stop_type"]], tuple(answer["tokens"])
        if cause == "Eos" and drawn[-1:] == self._eos:
            drawn = drawn[:-1]
        told = _as_far_as_told(answer.get("completion_probabilities") or (), drawn)
        return Stream(
            case=case.name,
            arm=self.name,
            text=answer["content"],
            prompt_token_ids=prompt,
            token_ids=drawn,
            positions=tuple(positions_of(told, case.logprobs)) if case.logprobs and told else None,
            finish_reason="length" if cause == "Length" else "stop",
            finish_cause=cause,
            usage=Usage(
                prompt_tokens=answer["tokens_evaluated"],
                completion_tokens=len(drawn),
                total_tokens=answer["tokens_evaluated"] + len(drawn),
                cached_tokens=answer.get("timings", {}).get("cache_n"),
            ),
            manifest=self._manifest | asked_of(case),
            counters={"tokens_predicted": answer.get("tokens_predicted")},
        )

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        self.reset()
        return tuple(self.generate(case) for _ in range(times))

    def reset(self) -> None:
        self._cold = True

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        """One token is asked for after every prefix, with the whole vocabulary as alternatives: slow, and exact."""
        if self._server is None:
            raise ArmError(f"arm {self.name} is not open")
        rows = []
        for end in range(start + 1, len(token_ids) + 1):
            body = NEUTRAL | {"prompt": list(token_ids[:end]), "n_predict": 1, "temperature": 0.0}
            # A letter is drawn whatever is likeliest: nothing is told of a token that is half a character, or the end.
            # The probabilities that are told are those before any bias.
            body |= {"logit_bias": [[self._letter, 1e9]]}
            body |= {"n_probs": 1 << 24, "cache_prompt": end > start + 1}
            (place,) = self._post("(logits)", "/completion", body)["completion_probabilities"]
            row = np.full(len(place["top_logprobs"]), -np.inf, np.float32)
            for entry in place["top_logprobs"]:
                row[entry["id"]] = entry["logprob"]
            rows.append(row)
        self._cold = True
        return np.stack(rows)

    def close(self) -> None:
        if self._server is not None:
            self._client.close()
            self._server = None


def _as_far_as_told(told: Sequence[dict[str, Any]], drawn: tuple[int, ...]) -> list[dict[str, Any]]:
    """The entries that line up with the tokens: none is told for a token whose text was held back."""
    count = 0
    while count < min(len(told), len(drawn)) and told[count]["id"] == drawn[count]:
        count += 1
    return list(told[: count + 1] if count == len(drawn) else told[:count])


def positions_of(told: Iterable[dict[str, Any]], count: int) -> Iterator[Position]:
    """llama.cpp's entries {id, token, logprob, top_logprobs}, as positions with `count` alternatives."""
    for entry in told:
        top = [TopToken(one["id"], one["token"], one["logprob"]) for one in entry["top_logprobs"]]
        gap = top[0].logprob - top[1].logprob if len(top) > 1 else None
        yield Position(
            token_id=entry["id"],
            token=entry["token"],
            logprob=entry["logprob"],
            top=tuple(top[:count]),
            margin=gap,
        )

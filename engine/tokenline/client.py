"""The one way in: the CLI, the server and Python are all clients of `Model`."""

from __future__ import annotations

import atexit
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenline.budget import ByteBudget
from tokenline.checkpoint.open import open_checkpoint
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.decode.sampling import BreakerTable, RowParameters
from tokenline.decode.structure import StructureTable
from tokenline.engine import Engine
from tokenline.errors import BackendError, CheckpointError, OverBudget, RequestError
from tokenline.generation import Generation
from tokenline.models import FAMILIES
from tokenline.models.text_part import text_config
from tokenline.ops import Precision, open_ops
from tokenline.prompt_cache import PromptCache
from tokenline.request import LoopDetection, Request, Sampling, validate
from tokenline.result import manifest_of, result_of
from tokenline.row import Event, Row
from tokenline.scheduler import MAX_QUEUE, PROMPT_CONCURRENCY, Limits, Scheduler
from tokenline.text.chat_template import ChatPrompt
from tokenline.text.tool_format import conversation
from tokenline.worker import Worker

DEFAULT_CACHE_BYTES = 1 << 30
# What of the manifest a cached state depends on.
NAMESPACE = ("weights_hash", "template_hash", "weight_bits", "weight_group", "kv_bits")
# A row that is given no bound ends at the context's end, and says so.
UNBOUNDED = 1 << 62

_SAMPLING_FIELDS = frozenset(Sampling.__struct_fields__)
_REQUEST_FIELDS = frozenset(Request.__struct_fields__) - {"sampling"}


def request_of(prompt: str | Sequence[int] | None = None, **params: Any) -> Request:
    """A request from flat names: the fields of Request and of Sampling. RequestError for an unknown name."""
    unknown = sorted(set(params) - _SAMPLING_FIELDS - _REQUEST_FIELDS)
    if unknown:
        raise RequestError(f"there is no parameter {unknown[0]!r}", "check its spelling", param=unknown[0])
    sampling = {name: params.pop(name) for name in sorted(_SAMPLING_FIELDS & set(params))}
    if isinstance(prompt, str):
        params["prompt"] = prompt
    elif prompt is not None:
        params["prompt_token_ids"] = [int(token) for token in prompt]
    if isinstance(params.get("stop"), str):
        params["stop"] = [params["stop"]]
    if params.get("loop_detection") is True:
        params["loop_detection"] = LoopDetection()
    try:
        return msgspec.convert({**params, "sampling": sampling}, Request, from_attributes=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").removeprefix("sampling.")
        raise RequestError(
            f"{name or 'a parameter'}: {message}", "check its type", param=name or None
        ) from error


class Model:
    """A checkpoint on a backend, ready to generate. Every method may be called from any thread.

    Greedy unless asked otherwise; a request without `max_tokens` runs to the end of the context.
    """

    def __init__(
        self,
        model: str,
        *,
        backend: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        parallel: int = 4,
        max_queue: int = MAX_QUEUE,
        prompt_concurrency: int = PROMPT_CONCURRENCY,
        kv_budget: int | None = None,
        context_length: int | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        kv_bits: int | None = None,
        weight_bits: int | None = None,
        weight_group: int = 64,
    ) -> None:
        limits = Limits(parallel, max_queue, prompt_concurrency)
        if kv_budget is not None and kv_budget < 1:
            raise BackendError(f"a kv budget of {kv_budget} bytes holds nothing", "leave it out, or raise it")
        if cache_bytes < 0:
            raise BackendError(f"a prompt cache of {cache_bytes} bytes is impossible", "use 0 (off) or more")
        precision = Precision(weight_bits=weight_bits, weight_group=weight_group, kv_bits=kv_bits)
        self._ids = itertools.count(1)
        self._worker = Worker("tokenline")
        try:
            self._worker.call(
                lambda: self._load(
                    model,
                    backend,
                    dtype,
                    threads,
                    precision,
                    limits,
                    kv_budget,
                    context_length,
                    cache_bytes,
                )
            ).result()
        except BaseException:
            self._worker.close(lambda: None)
            raise
        self._worker.ticks(self._tick)
        atexit.register(self.close)

    def _load(
        self,
        model: str,
        backend: str,
        dtype: str,
        threads: int | None,
        precision: Precision,
        limits: Limits,
        kv_budget: int | None,
        context_length: int | None,
        cache_bytes: int,
    ) -> None:
        checkpoint = open_checkpoint(model, FAMILIES)
        self._ops = open_ops(backend, dtype, threads, precision)
        limit = text_config(checkpoint.config).get("max_position_embeddings")
        if context_length is not None and not 1 < context_length <= (limit or context_length):
            raise CheckpointError(
                f"a context of {context_length} tokens is outside what {checkpoint.name} was made for",
                f"use 2 to {limit}",
            )
        network = FAMILIES[checkpoint.family](
            self._ops, checkpoint.config, checkpoint.tensors, context_length
        )
        unused = checkpoint.tensors.unused()
        if unused:
            raise CheckpointError(
                f"{checkpoint.name} holds {len(unused)} tensors that a {checkpoint.family} does not have, "
                f"such as {unused[0]}",
                "its config.json names the wrong family",
            )
        budget = ByteBudget.of(self._ops, network, kv_budget)
        self._longest = budget.longest_alone(network.context_length)
        self.name = checkpoint.name
        self.tokenizer = checkpoint.text.tokenizer
        self.chat_template = checkpoint.text.template
        self._breakers = BreakerTable(self.tokenizer)
        self._structures = StructureTable(self.tokenizer, self.chat_template, network.vocabulary_size)
        self.context_length = network.context_length
        self.weight_bytes = network.weight_bytes
        self._vocabulary_size = network.vocabulary_size
        pipelined = os.environ.get("TOKENLINE_SYNC", "") not in ("1", "true")
        self.manifest = manifest_of(checkpoint, self._ops, pipelined)
        self.manifest["weight_bytes"] = network.weight_bytes
        self._prompt_cache = PromptCache(cache_bytes)
        namespace = ":".join(str(self.manifest[part]) for part in NAMESPACE)
        self._engine = Engine(self._ops, network, self._prompt_cache, namespace, pipelined=pipelined)
        self._scheduler = Scheduler(self._engine, budget, limits)

    def _tick(self) -> bool:
        self._scheduler.tick()
        return not self._scheduler.idle

    def submit(self, request: Request) -> Generation:
        """Queue a request; returns at once. RequestError, naming the field, for one that cannot run;
        OverBudget for one that memory is not kept for even alone; QueueFull while as many wait as may."""
        validate(request, self._vocabulary_size)
        chat = self._prompt(request)
        prompt, message_ends = chat.token_ids, chat.message_ends
        if not prompt:
            raise RequestError(
                "the prompt is empty", "give it at least one token", param=_prompt_field(request)
            )
        if len(prompt) >= self.context_length:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens, the context {self.context_length}",
                "shorten the prompt: at least one token must fit after it",
                param=_prompt_field(request),
            )
        structure = self._structures.of(request, chat.end, lambda index: _call_id(prompt, index))
        generation = Generation()
        row = Row(
            request=request,
            prompt=prompt,
            plan=PrefillPlan.of(len(prompt), message_ends),
            parameters=RowParameters.of(request, self.tokenizer, self._breakers),
            tokenizer=self.tokenizer,
            max_tokens=UNBOUNDED if request.max_tokens is None else request.max_tokens,
            context_length=self.context_length if request.max_tokens is not None else self._longest,
            free_unused=self._ops.free_unused,
            emit=generation.emit,
            finished=self._finished,
            structure=structure,
            id=next(self._ids),
        )
        if row.length_at_end > self._longest or len(prompt) >= self._longest:
            raise OverBudget(
                f"prompt and answer may come to {row.length_at_end} tokens, memory is kept for {self._longest}",
                "lower max_tokens" if len(prompt) < self._longest else "shorten the prompt",
                param="max_tokens" if len(prompt) < self._longest else _prompt_field(request),
            )
        generation.attach(row)
        self._scheduler.submit(row)
        self._worker.call(lambda: None)  # it may be asleep
        return generation

    def _finished(self, row: Row) -> dict[str, Any]:
        result = result_of(row, self.manifest)
        self._scheduler.tally.note(result)
        return result

    def observe(self, observer: Callable[[dict[str, Any]], None]) -> None:
        """Have every finished row's result handed to the observer, once each, on the engine's thread."""
        self._scheduler.tally.observe(observer)

    def _prompt(self, request: Request) -> ChatPrompt:
        if request.prompt_token_ids is not None:
            return ChatPrompt(list(request.prompt_token_ids), [])
        if request.prompt is not None:
            return ChatPrompt(self.tokenizer.encode(request.prompt), [])
        if self.chat_template is None:
            raise RequestError(f"{self.name} has no chat template", "send a prompt instead", param="messages")
        self._structures.check_tools(request)
        messages, fault = conversation(request.messages or ())
        if fault is not None:
            raise RequestError(f"{fault} cannot be read", "send it as it was answered", param=fault)
        variables = dict(request.chat_template_kwargs)
        if request.tools:
            if "tools" in variables:
                raise RequestError("tools are given twice", "leave one out", param="chat_template_kwargs")
            variables["tools"] = list(request.tools)
        return self.chat_template.prompt(self.tokenizer, messages, **variables)

    def generate(self, prompt: str | Sequence[int] | None = None, **params: Any) -> dict[str, Any]:
        """Run one request to its end and return its result object; `messages=` goes through the chat template."""
        return self.submit(request_of(prompt, **params)).result()

    def stream(self, prompt: str | Sequence[int] | None = None, **params: Any) -> Iterator[Event]:
        """One event per token as it is decided; leaving the loop early cancels the row."""
        generation = self.submit(request_of(prompt, **params))
        try:
            yield from generation
        finally:
            generation.cancel()

    def logits(self, token_ids: Sequence[int]) -> np.ndarray:
        """Teacher-forced, one forward: float32 [tokens, vocabulary]."""
        tokens = self._forwardable(token_ids)
        return self._worker.call(lambda: self._engine.logits(tokens)).result()

    def taps(self, token_ids: Sequence[int]) -> dict[str, np.ndarray]:
        """The forward of `logits`, every block's array by name, in the order of the network: float32 [tokens, width].

        Names: `embedding`; `layers.N.` with `attention_norm`, `attention`, `mlp_norm`, `mlp`; `norm`; `head`, which is
        what `logits` returns. `attention` and `mlp` are the residual stream after that block.
        """
        tokens = self._forwardable(token_ids)
        return self._worker.call(lambda: self._engine.taps(tokens)).result()

    def _forwardable(self, token_ids: Sequence[int]) -> list[int]:
        tokens = [int(token) for token in token_ids]
        if not 0 < len(tokens) <= self.context_length:
            raise RequestError(
                f"{len(tokens)} tokens cannot be forwarded",
                f"give 1 to {self.context_length}",
                param="token_ids",
            )
        validate(Request(prompt_token_ids=tuple(tokens)), self._vocabulary_size)
        return tokens

    def reset_cache(self) -> None:
        """Drop every state of the prompt cache."""
        self._worker.call(self._prompt_cache.clear).result()

    def cache_stats(self) -> dict[str, int]:
        cache = self._prompt_cache
        return self._worker.call(
            lambda: {
                "entries": len(cache),
                "bytes": cache.nbytes,
                "limit_bytes": cache.limit_bytes,
                "hits": cache.hits,
                "misses": cache.misses,
            }
        ).result()

    def stats(self) -> dict[str, Any]:
        """Rows: running (those prefilling among them), queued, prefilling, parallel and max_queue (how many there may
        be); kv_bytes and kv_budget_bytes (layer caches of live rows); and over the model's life finished (requests by
        finish cause), prompt_tokens, cached_tokens, generated_tokens of those."""
        return self._worker.call(self._scheduler.stats).result()

    def slots(self) -> list[dict[str, Any]]:
        """One entry for each live row: id, state ("queued", "prefilling", "decoding"), prompt_tokens, cached_tokens,
        prefilled_tokens, generated_tokens, max_tokens, priority, lane, seconds since it was submitted."""
        return self._worker.call(self._scheduler.slots).result()

    def close(self) -> None:
        """End every row and give the memory back; a second call does nothing."""
        atexit.unregister(self.close)
        self._worker.close(self._unload)

    def _unload(self) -> None:
        self._scheduler.close()
        del self._engine

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _call_id(prompt: Sequence[int], index: int) -> str:
    """The same for the same conversation, streamed or not and on every path; another in the next turn."""
    digest = hashlib.sha256(np.asarray([index, *prompt], np.int64).tobytes())
    return f"call_{digest.hexdigest()[:24]}"


def _prompt_field(request: Request) -> str:
    return "messages" if request.messages is not None else "prompt"


def load(model: str, **options: Any) -> Model:
    """Open MODEL (a Hugging Face directory, a .gguf file or an alias) and return it ready to generate.

    Options: backend ("auto", "torch", "mlx"), dtype ("auto", "float32", "bfloat16", "float16", "quantized"), threads,
    parallel (rows at once), max_queue (requests that may wait), prompt_concurrency (prompts read by turns), kv_budget
    (bytes of live rows' layer caches), context_length (tokens), cache_bytes (prompt cache),
    kv_bits (4 or 8: attention caches), weight_bits (4 or 8: dense matrices, in groups of weight_group: 32, 64 or 128).
    CheckpointError or BackendError, with the mend, where that fails.
    """
    return Model(model, **options)

"""The one way in: the CLI, the server and Python are all clients of `Model`."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenline.budget import ByteBudget
from tokenline.checkpoint.generation_config import generation_defaults
from tokenline.decode.drawable import drawable, lists_of
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.decode.sampling import BreakerTable, RowParameters
from tokenline.decode.structure import Structure, StructureTable
from tokenline.embedding import embedding
from tokenline.engine import Engine
from tokenline.errors import BackendError, CacheFileError, OverBudget, RequestError
from tokenline.generation import Generation
from tokenline.loading import load_network
from tokenline.namespace import namespace_of
from tokenline.ops import Precision, open_ops
from tokenline.prompt import Prompts, call_id, prompt_field
from tokenline.prompt_cache import PromptCache
from tokenline.prompt_cache_file import PromptCacheFile
from tokenline.request import Request, request_of, validate
from tokenline.result import manifest_of, result_of
from tokenline.row import Event, Row
from tokenline.scheduler import MAX_QUEUE, PROMPT_CONCURRENCY, Limits, Scheduler
from tokenline.teacher import Teacher
from tokenline.text.chat_template import ChatPrompt
from tokenline.worker import Worker

DEFAULT_CACHE_BYTES = 1 << 30
# A row that is given no bound ends at the context's end, and says so.
UNBOUNDED = 1 << 62


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
        adapters: Mapping[str, str | Path] | None = None,
        prompt_cache_file: str | Path | None = None,
    ) -> None:
        limits = Limits(parallel, max_queue, prompt_concurrency)
        if kv_budget is not None and kv_budget < 1:
            raise BackendError(f"a kv budget of {kv_budget} bytes holds nothing", "leave it out, or raise it")
        if cache_bytes < 0:
            raise BackendError(f"a prompt cache of {cache_bytes} bytes is impossible", "use 0 (off) or more")
        if prompt_cache_file is not None and cache_bytes == 0:
            raise BackendError("a prompt cache of 0 bytes has nothing to keep in a file", "give it bytes")
        precision = Precision(weight_bits=weight_bits, weight_group=weight_group, kv_bits=kv_bits)
        self._ids = itertools.count(1)
        self._embedding = threading.Lock()
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
                    adapters or {},
                    prompt_cache_file,
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
        directories: Mapping[str, str | Path],
        prompt_cache_file: str | Path | None,
    ) -> None:
        self._ops = open_ops(backend, dtype, threads, precision)
        loaded = load_network(self._ops, model, directories, context_length)
        checkpoint, adapters, network = loaded.checkpoint, loaded.adapters, loaded.network
        budget = ByteBudget.of(self._ops, network, kv_budget)
        self._longest = budget.longest_alone(network.context_length)
        self.name = checkpoint.name
        self._adapter_hashes = adapters.hashes
        self.adapters = tuple(adapters.hashes)
        self.tokenizer = checkpoint.text.tokenizer
        self.chat_template = checkpoint.text.template
        self._breakers = BreakerTable(self.tokenizer)
        self._structures = StructureTable(self.tokenizer, self.chat_template, network.vocabulary_size)
        self.context_length = network.context_length
        self._prompts = Prompts(
            self.name, self.tokenizer, self.chat_template, self._structures, self.context_length
        )
        # What its authors would have a request that leaves these fields open say; the server applies it where asked.
        self.generation_defaults = generation_defaults(checkpoint.generation_config)
        self.weight_bytes = network.weight_bytes
        self.vocabulary_size = network.vocabulary_size
        pipelined = os.environ.get("TOKENLINE_SYNC", "") not in ("1", "true")
        self.manifest = manifest_of(checkpoint, self._ops, pipelined)
        self.manifest["weight_bytes"] = network.weight_bytes
        self._prompt_cache = PromptCache(cache_bytes)
        namespace = namespace_of(self.manifest, self.context_length)
        self._engine = Engine(
            self._ops, network, self._prompt_cache, namespace, pipelined=pipelined, adapters=adapters
        )
        self._scheduler = Scheduler(self._engine, budget, limits)
        self._teacher = Teacher(self._ops, network, adapters)
        self._cache_file = None
        if prompt_cache_file is not None:
            self._cache_file = PromptCacheFile(Path(prompt_cache_file), self._ops, network.new_caches)
            self._cache_file.recall(self._prompt_cache, self._engine.namespaces.values())

    def _tick(self) -> bool:
        self._scheduler.tick()
        return not self._scheduler.idle

    def submit(self, request: Request) -> Generation:
        """Queue a request; returns at once. RequestError, naming the field, for one that cannot run;
        OverBudget for one that memory is not kept for even alone; QueueFull while as many wait as may."""
        chat = self.prompt(request)
        prompt, message_ends = chat.token_ids, chat.message_ends
        structure = self._structures.of(request, chat.text, lambda index: call_id(prompt, index))
        self._require_drawable(request, structure)
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
                param="max_tokens" if len(prompt) < self._longest else prompt_field(request),
            )
        generation.attach(row)
        self._scheduler.submit(row)
        self._worker.call(lambda: None)  # it may be asleep
        return generation

    def _require_drawable(self, request: Request, structure: Structure) -> None:
        """RequestError for a request that leaves no token to begin with."""
        lists = lists_of(request.sampling)
        held = [request.constraint or "tools"] if structure.grammar is not None else []
        if not lists and not held:
            return
        grammar = structure.grammar
        allowed = np.ones(self.vocabulary_size, bool) if grammar is None else grammar.allowed()
        if not allowed.any():
            raise RequestError(f"nothing meets {held[0]}", "loosen it", param=held[0])
        if not drawable(request.sampling, self.tokenizer.eos_token_ids, allowed).any():
            names = [*held, *lists]
            both = "exclude each other" if len(names) > 1 else "leaves no token to begin with"
            raise RequestError(f"{' and '.join(names)} {both}", "loosen one of them", param=names[-1])

    @property
    def most_rows(self) -> int:
        """As many as can run or wait at once."""
        return self._scheduler.most_rows

    def _require_adapter(self, name: str | None) -> None:
        if name is not None and name not in self.adapters:
            raise RequestError(
                f"there is no adapter {name!r}",
                f"use one of {', '.join(self.adapters)}" if self.adapters else "the model was loaded without",
                param="adapter",
            )

    def prompt(self, request: Request) -> ChatPrompt:
        """What `submit` would have the row start with."""
        validate(request, self.vocabulary_size)
        self._require_adapter(request.adapter)
        return self._prompts.of(request)

    def _finished(self, row: Row) -> dict[str, Any]:
        result = result_of(row, self.manifest, self._adapter_hashes.get(row.lane))
        self._scheduler.tally.note(result)
        return result

    def observe(self, observer: Callable[[dict[str, Any]], None]) -> None:
        """Have every finished row's result handed to the observer, once each, on the engine's thread."""
        self._scheduler.tally.observe(observer)

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

    def logits(
        self, token_ids: Sequence[int], *, size: int | None = None, adapter: str | None = None
    ) -> np.ndarray:
        """Teacher-forced, in one forward or in pieces of `size` tokens: float32 [tokens, vocabulary]."""
        tokens = self._forwardable(token_ids, adapter)
        if size is not None and size < 1:
            raise RequestError(f"pieces of {size} tokens cannot be forwarded", "use 1 or more", param="size")
        plan = PrefillPlan.even(len(tokens), size)
        return self._worker.call(lambda: self._teacher.logits(tokens, plan, adapter or "")).result()

    @property
    def teacher_forwards(self) -> int:
        """Forwards that `logits` has run since the model was loaded."""
        return self._worker.call(lambda: self._teacher.forwards).result()

    def embed(self, token_ids: Sequence[int], adapter: str | None = None) -> np.ndarray:
        """The text as a vector of length 1, the mean of its last hidden states: float32 [width]."""
        tokens = self._forwardable(token_ids, adapter)
        with self._embedding:  # one at a time: what it remembers is outside the budget of rows
            return embedding(self._worker, self._teacher, tokens, adapter or "")

    def taps(self, token_ids: Sequence[int], *, adapter: str | None = None) -> dict[str, np.ndarray]:
        """The forward of `logits`, every block's array by name, in the order of the network: float32 [tokens, width].

        Names: `embedding`; `layers.N.` with `attention_norm`, `attention`, `mlp_norm`, `mlp`; `norm`; `head`, which is
        what `logits` returns. `attention` and `mlp` are the residual stream after that block.
        """
        tokens = self._forwardable(token_ids, adapter)
        return self._worker.call(lambda: self._teacher.taps(tokens, adapter or "")).result()

    def _forwardable(self, token_ids: Sequence[int], adapter: str | None) -> list[int]:
        self._require_adapter(adapter)
        tokens = [int(token) for token in token_ids]
        if not 0 < len(tokens) <= self.context_length:
            raise RequestError(
                f"{len(tokens)} tokens cannot be forwarded",
                f"give 1 to {self.context_length}",
                param="token_ids",
            )
        validate(Request(prompt_token_ids=tuple(tokens)), self.vocabulary_size)
        return tokens

    def reset_cache(self) -> None:
        """Drop every state of the prompt cache."""
        self._worker.call(self._prompt_cache.clear).result()

    def save_cache(self) -> None:
        """Write the prompt cache to its file, where the next model finds it; closing does it too. CacheFileError where
        that fails or there is no file."""
        file = self._cache_file
        if file is None:
            raise CacheFileError("there is no file to save to", "load the model with prompt_cache_file=PATH")
        self._worker.call(lambda: file.save(self._prompt_cache)).result()

    def cache_stats(self) -> dict[str, int]:
        """Of the prompt cache: entries, bytes, limit_bytes, hits and misses."""
        return self._worker.call(self._prompt_cache.stats).result()

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
        if self._cache_file is not None:
            self._cache_file.keep(self._prompt_cache)
        self._scheduler.close()
        del self._engine, self._teacher

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(model: str, **options: Any) -> Model:
    """Open MODEL (a Hugging Face directory, a .gguf file or an alias) and return it ready to generate.

    Options: backend ("auto", "torch", "mlx"), dtype ("auto", "float32", "bfloat16", "float16", "quantized"), threads,
    parallel (rows at once), max_queue (requests that may wait), prompt_concurrency (prompts read by turns), kv_budget
    (bytes of live rows' layer caches), context_length (tokens), cache_bytes (prompt cache), kv_bits (4 or 8: attention
    caches), weight_bits (4 or 8: dense matrices, in groups of weight_group: 32, 64 or 128), adapters (name to the
    directory of a LoRA or DoRA as PEFT or mlx-lm saves it; requests name one), prompt_cache_file (kept between
    processes: read now, written by `close` and `save_cache`). CheckpointError or BackendError, with the mend, where
    that fails.
    """
    return Model(model, **options)

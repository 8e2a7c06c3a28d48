"""Families whose every logit is known beforehand, over the engine's own layer cache."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import tokenizers

from tokenline.cache import DenseCache, LayerCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.ops import Array, Ops
from tokenline.text.tokenizer import Tokenizer


def spelled(pieces: Sequence[str]) -> tokenizers.Tokenizer:
    """A byte-level vocabulary of exactly these pieces and an end of sequence after them."""
    vocabulary = {piece.replace("\n", "Ċ").replace(" ", "Ġ"): index for index, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return made


class Induction:
    """One induction head: what followed the current token before, as often as it did, and a table of preferences.

    Its logits are small integers over small integers plus the table, so that float32 gives the same bits on every
    backend, in a batch and alone; and they depend on everything that the layer cache holds.
    """

    def __init__(
        self, ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None
    ) -> None:
        size = config["vocab_size"]
        self._ops = ops
        self._identity = ops.float32(np.eye(size))
        self._preferences = ops.float32(tensors.take("preferences", (size, size)))
        self.vocabulary_size, self.weight_bytes = size, size * size * 4
        self.context_length = context_length or config["max_position_embeddings"]

    def new_caches(self) -> list[LayerCache]:
        return [DenseCache(self._ops, 1, self.vocabulary_size)]

    def hidden(self, ids: Array, caches: Sequence[LayerCache]) -> Array:
        ops, [cache], tokens = self._ops, caches, ids.shape[1]
        start, mask = cache.length, cache.mask(tokens)
        if mask is None or isinstance(mask, str):
            keys = np.arange(start + tokens)
            mask = ops.array((keys[None] <= np.arange(start, start + tokens)[:, None])[None, None])
        here = ops.embedding(ids, self._identity)[:, None]
        held, followed = cache.update(here, here)
        same = ops.row_sum(here[:, :, :, None] * held[:, :, None])[..., 0]
        seen = ops.to_float32(mask)
        weights = same[..., :-1] * seen[..., :-1] * seen[..., 1:]
        if weights.shape[-1] == 0:
            return ops.embedding(ids, self._preferences)
        count = ops.row_sum(weights)
        counted = weights @ followed[:, :, 1:]
        return (counted / ops.where(count > 0, count, 1.0))[:, 0] + ops.embedding(ids, self._preferences)

    def logits(self, hidden: Array) -> Array:
        return hidden


def induction_logits(tokens: Sequence[int], preferences: np.ndarray) -> np.ndarray:
    """The same on the host, from the tokens alone."""
    counted = np.zeros(len(preferences), np.float32)
    for token, following in pairwise(tokens):
        counted[following] += token == tokens[-1]
    count = counted.sum() or np.float32(1)
    return counted / count + preferences[tokens[-1]]


def preferences_of(seed: int, size: int) -> np.ndarray:
    """Near each other and not near 0, so that a penalty of 1.3 turns most choices; the end is never preferred."""
    preferences = np.random.default_rng(seed).uniform(2, 3, (size, size)).astype(np.float32)
    preferences[:, -1] = -9
    return preferences


def save_induction(directory: Path, seed: int, letters: str) -> Path:
    """A checkpoint of it: the letters are its vocabulary, with an end of sequence that it never prefers."""
    size = len(letters) + 1
    preferences = preferences_of(seed, size)
    directory.mkdir()
    safetensors.numpy.save_file({"preferences": preferences}, directory / "model.safetensors")
    config = {"model_type": "induction", "vocab_size": size, "max_position_embeddings": 512}
    (directory / "config.json").write_text(json.dumps({**config, "eos_token_id": size - 1}))
    spelled(letters).save(str(directory / "tokenizer.json"))
    return directory


class Scripted:
    """Says a given text: after the prompt's `prompt` tokens comes the script, whatever was drawn."""

    def __init__(self, ops: Ops, vocabulary: int, prompt: int, script: Sequence[int]) -> None:
        self._ops = ops
        said = np.zeros((1024, vocabulary), np.float32)
        said[np.arange(prompt - 1, prompt - 1 + len(script)), list(script)] = 9.0
        self._said = ops.float32(said)
        self.vocabulary_size, self.context_length, self.weight_bytes = vocabulary, 1024, 0

    def new_caches(self) -> list[LayerCache]:
        return [DenseCache(self._ops, 1, 1)]

    def hidden(self, ids: Array, caches: Sequence[LayerCache]) -> Array:
        [cache], (rows, tokens) = caches, ids.shape
        positions = cache.positions(tokens)
        if isinstance(positions, int):
            positions = np.repeat(np.arange(positions, positions + tokens)[None], rows, 0)
        nothing = self._ops.zeros((rows, 1, tokens, 1))
        cache.update(nothing, nothing)
        return self._ops.embedding(self._ops.array(positions), self._said)

    def logits(self, hidden: Array) -> Array:
        return hidden


class Spoken(Scripted):
    """The same as a family of a checkpoint's: what it says is set afterwards."""

    def __init__(
        self, ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None
    ) -> None:
        tensors.take("nothing", (1, 1))
        super().__init__(ops, config["vocab_size"], 1, [])

    def say(self, prompt: int, script: Sequence[int]) -> None:
        """After a prompt of so many tokens; on the thread that computes."""
        Scripted.__init__(self, self._ops, self.vocabulary_size, prompt, script)


def save_spoken(directory: Path, tokenizer: tokenizers.Tokenizer, template: str, end: str) -> Path:
    """A checkpoint of it."""
    directory.mkdir()
    nothing = np.zeros((1, 1), np.float32)
    safetensors.numpy.save_file({"nothing": nothing}, directory / "model.safetensors")
    size = tokenizer.get_vocab_size()
    config = {"model_type": "spoken", "vocab_size": size, "max_position_embeddings": 1024}
    (directory / "config.json").write_text(json.dumps({**config, "eos_token_id": tokenizer.token_to_id(end)}))
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(template)
    return directory


def scripted_tokenizer(pieces: Sequence[str]) -> Tokenizer:
    end = len(pieces)
    return Tokenizer(spelled(pieces), eos_token_ids=frozenset({end}), bos_token_id=None, add_bos=False)

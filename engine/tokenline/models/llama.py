"""Llama and what shares its shape (SmolLM2, TinyLlama, …): rms norm, rope, grouped-query attention, gated MLP."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tokenline.cache import DenseCache, LayerCache
from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.models.layers import Attention, Embedding, GatedMlp, Linear, RmsNorm
from tokenline.models.rope import RopeTable, inverse_frequencies
from tokenline.ops.base import Array, Ops


@dataclass(frozen=True)
class LlamaConfig:
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    attention_bias: bool
    mlp_bias: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """From the keys of config.json, of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters)."""
        rope = dict(config.get("rope_parameters") or {})
        try:
            heads = config["num_attention_heads"]
            if config.get("hidden_act", "silu") != "silu":
                raise CheckpointError(
                    f"a llama with {config['hidden_act']!r} is not supported", "supported: silu"
                )
            made = cls(
                hidden_size=config["hidden_size"],
                intermediate_size=config["intermediate_size"],
                num_hidden_layers=config["num_hidden_layers"],
                num_attention_heads=heads,
                num_key_value_heads=config.get("num_key_value_heads") or heads,
                head_dim=config.get("head_dim") or config["hidden_size"] // heads,
                rms_norm_eps=config.get("rms_norm_eps", 1e-6),
                vocab_size=config["vocab_size"],
                max_position_embeddings=config.get("max_position_embeddings", 2048),
                rope_theta=config.get("rope_theta") or rope.get("rope_theta", 10000.0),
                rope_scaling=config.get("rope_scaling") or rope,
                attention_bias=bool(config.get("attention_bias", False)),
                mlp_bias=bool(config.get("mlp_bias", False)),
            )
        except KeyError as error:
            raise CheckpointError(
                f"the configuration lacks {error}", "give a complete config.json"
            ) from error
        sizes = (made.hidden_size, made.num_hidden_layers, heads, made.num_key_value_heads, made.vocab_size)
        if any(not isinstance(n, int) or n < 1 for n in sizes) or heads % made.num_key_value_heads:
            raise CheckpointError(f"the configuration's sizes make no model: {sizes}", "mend config.json")
        return made


_BLOCKS = ("attention_norm", "attention", "mlp_norm", "mlp")


class _Layer:
    def __init__(self, ops: Ops, tensors: Tensors, index: int, config: LlamaConfig) -> None:
        name, width = f"model.layers.{index}", config.hidden_size
        self._blocks = [f"layers.{index}.{block}" for block in _BLOCKS]
        self._norm = RmsNorm(ops, tensors, f"{name}.input_layernorm", width, config.rms_norm_eps)
        self._attention = Attention(
            ops,
            tensors,
            f"{name}.self_attn",
            width=width,
            heads=config.num_attention_heads,
            key_value_heads=config.num_key_value_heads,
            size=config.head_dim,
            bias=config.attention_bias,
        )
        self._mlp_norm = RmsNorm(ops, tensors, f"{name}.post_attention_layernorm", width, config.rms_norm_eps)
        self._mlp = GatedMlp(
            ops, tensors, f"{name}.mlp", width=width, inner=config.intermediate_size, bias=config.mlp_bias
        )
        self.nbytes = self._attention.nbytes + self._mlp.nbytes

    def blocks(
        self, x: Array, cos: Array, sin: Array, mask: Any, cache: LayerCache
    ) -> Generator[tuple[str, Array], None, Array]:
        """What each block leaves: a norm its output, attention and mlp the stream after them; returns the last."""
        attention_norm, attention, mlp_norm, mlp = self._blocks
        normed = self._norm(x)
        yield attention_norm, normed
        x = x + self._attention(normed, cos, sin, mask, cache)
        yield attention, x
        normed = self._mlp_norm(x)
        yield mlp_norm, normed
        x = x + self._mlp(normed)
        yield mlp, x
        return x


class Llama:
    def __init__(
        self, ops: Ops, config: Mapping[str, Any], tensors: Tensors, context_length: int | None
    ) -> None:
        self._ops = ops
        self._config = c = LlamaConfig.of(config)
        self.vocabulary_size = c.vocab_size
        self.context_length = context_length or c.max_position_embeddings
        tied = config.get("tie_word_embeddings", "lm_head.weight" not in tensors)
        self._embedding = Embedding(
            ops, tensors, "model.embed_tokens", c.vocab_size, c.hidden_size, tied=tied
        )
        self._layers = [_Layer(ops, tensors, i, c) for i in range(c.num_hidden_layers)]
        self._norm = RmsNorm(ops, tensors, "model.norm", c.hidden_size, c.rms_norm_eps)
        if tied:
            tensors.leave("lm_head.weight")
        self._head = None if tied else Linear(ops, tensors, [("lm_head", c.vocab_size)], c.hidden_size)
        frequencies = inverse_frequencies(c.head_dim, c.rope_theta, c.rope_scaling)
        self._rope = RopeTable(ops, frequencies, self.context_length)
        head_bytes = self._embedding.head_nbytes if self._head is None else self._head.nbytes
        self.weight_bytes = head_bytes + sum(layer.nbytes for layer in self._layers)

    def new_caches(self) -> list[LayerCache]:
        c = self._config
        return [DenseCache(self._ops, c.num_key_value_heads, c.head_dim) for _ in self._layers]

    def hidden(self, ids: Array, caches: Sequence[LayerCache]) -> Array:
        [(_, x)] = deque(self.blocks(ids, caches), maxlen=1)
        return x

    def blocks(self, ids: Array, caches: Sequence[LayerCache]) -> Iterator[tuple[str, Array]]:
        tokens = ids.shape[1]
        cos, sin = self._rope.at(caches[0].positions(tokens), tokens)
        mask = caches[0].mask(tokens)
        x = self._embedding(ids)
        yield "embedding", x
        for layer, cache in zip(self._layers, caches, strict=True):
            x = yield from layer.blocks(x, cos, sin, mask, cache)
        yield "norm", self._norm(x)

    def logits(self, hidden: Array) -> Array:
        return self._embedding.head(hidden) if self._head is None else self._head(hidden)

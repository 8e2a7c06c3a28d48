"""A row of the table: what one of llama.cpp's architectures is as a Hugging Face checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenline.checkpoint.gguf.rope import ROPE, head_size
from tokenline.checkpoint.gguf.said import MEND, Said, has, most, number, whole
from tokenline.checkpoint.gguf.undo import Join, Undo, pairs_as_halves
from tokenline.errors import CheckpointError


@dataclass(frozen=True)
class Matrix:
    """The name in a directory, below the layer's, and how the values are undone. `{expert}` in it: one matrix for each
    of those that are stacked."""

    name: str
    undo: Undo | None = None


@dataclass(frozen=True)
class Joined:
    """One matrix of a directory that is several in the file."""

    name: str
    parts: tuple[str, ...]
    join: Join


@dataclass(frozen=True)
class Architecture:
    """`keys` is config.json, each key with its reader or its value. Tensors are by their names in the file, without the
    block and, where both a weight and a bias go the same way, without the ending; `layer` begins a layer's names in
    the directory."""

    family: str
    keys: Mapping[str, Any]
    layers: Mapping[str, str | Matrix]
    joined: tuple[Joined, ...] = ()
    outside: Mapping[str, str | Matrix] = field(default_factory=lambda: OUTSIDE)
    layer: str = "model.layers."


def _vocabulary(said: Said) -> int:
    return said.whole("vocab_size", len(said.values.get("tokenizer.ggml.tokens") or ()))


def of_heads(said: Said) -> int:
    """Entries of a head of a state space."""
    heads, inner = said.whole("ssm.time_step_rank"), said.whole("ssm.inner_size")
    if inner % heads:
        raise CheckpointError(f"{said.file} has a state space of {inner} in {heads} heads", MEND)
    return inner // heads


OUTSIDE: Mapping[str, str | Matrix] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
FRAME = {
    "hidden_size": whole("embedding_length"),
    "num_hidden_layers": lambda said: said.layers,
    "max_position_embeddings": whole("context_length"),
    "vocab_size": _vocabulary,
    "tie_word_embeddings": lambda said: "output.weight" not in said.tensors,
    "rms_norm_eps": number("attention.layer_norm_rms_epsilon", 1e-5),
}
HEADS = {
    "num_attention_heads": whole("attention.head_count"),
    "num_key_value_heads": most("attention.head_count_kv"),
    "head_dim": head_size,
    "attention_bias": has("attn_q.bias"),
}
DENSE = {**FRAME, **HEADS, **ROPE, "intermediate_size": whole("feed_forward_length")}

ATTENTION: Mapping[str, str | Matrix] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
# Where pairs are stored as neighbours and the directory has them as halves.
PAIRED = {
    "attn_q": Matrix("self_attn.q_proj", pairs_as_halves("num_attention_heads")),
    "attn_k": Matrix("self_attn.k_proj", pairs_as_halves("num_key_value_heads")),
}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
BLOCK = {**ATTENTION, **MLP, "ffn_norm": "post_attention_layernorm"}
# Stacked, in the layout that mlx-lm has too.
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.switch_mlp.gate_proj",
    "ffn_up_exps": "mlp.switch_mlp.up_proj",
    "ffn_down_exps": "mlp.switch_mlp.down_proj",
}
COUNTS = {"num_local_experts": whole("expert_count"), "num_experts_per_tok": whole("expert_used_count")}

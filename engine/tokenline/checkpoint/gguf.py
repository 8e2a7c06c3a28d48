"""GGUF files: metadata to a Hugging Face configuration, tensor names and layouts to Hugging Face ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.errors import CheckpointError
from tokenline.ops.arrays import HostArray, QuantizedArray, map_rows

_BLOCK = 32

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = re.compile(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)")
_FAMILIES = {"llama": "llama"}


def read_gguf(path: Path) -> GGUFReader:
    """The opened file; CheckpointError for one that is no GGUF or ends before its tensors do."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise CheckpointError(f"{path.name} is not a GGUF file", "give a .gguf file or a model directory")
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        size = path.stat().st_size
        raise CheckpointError(
            f"{path.name} is truncated or corrupt: its {size} bytes do not hold what its header says",
            "fetch it again",
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{path.name} cannot be read ({error.strerror})", "check the path and its rights"
        ) from error
    size = path.stat().st_size
    end = max((int(t.data_offset) + int(t.n_bytes) for t in reader.tensors), default=0)
    if not reader.tensors or end > size:
        raise CheckpointError(
            f"{path.name} ends at byte {size}, its tensors at {end}", "it is truncated; fetch it again"
        )
    return reader


def metadata(reader: GGUFReader) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items()}


def family_and_config(name: str, meta: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The family, and the metadata as a config.json would spell them."""
    architecture = meta.get("general.architecture")
    if architecture not in _FAMILIES:
        raise CheckpointError(
            f"{name} holds the architecture {architecture!r}, which is not supported",
            f"supported in GGUF: {', '.join(sorted(_FAMILIES))}",
        )

    def get(key: str, default: Any = None) -> Any:
        value = meta.get(f"{architecture}.{key}", default)
        if value is None:
            raise CheckpointError(f"{name} lacks the metadata key {architecture}.{key}", "fetch it again")
        return value

    heads = get("attention.head_count")
    config = {
        "model_type": _FAMILIES[architecture],
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "head_dim": get("attention.key_length", get("embedding_length") // heads),
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "rope_theta": get("rope.freq_base", 10000.0),
        "max_position_embeddings": get("context_length"),
        "vocab_size": get("vocab_size", len(meta.get("tokenizer.ggml.tokens", []))),
    }
    scaling = meta.get(f"{architecture}.rope.scaling.type", "none")
    if scaling == "linear":
        config["rope_scaling"] = {"rope_type": "linear", "factor": get("rope.scaling.factor")}
    elif scaling != "none":
        raise CheckpointError(
            f"{name} scales rope by {scaling!r}, which is not supported", "supported: none, linear"
        )
    return _FAMILIES[architecture], config


def _interleaved_to_halves(heads: int) -> Callable[[np.ndarray], np.ndarray]:
    """GGUF stores the rows of a llama's q and k so that rope pairs are neighbours; undo it: pairs are halves."""

    def change(rows: np.ndarray) -> np.ndarray:
        count = rows.shape[0]
        return rows.reshape(heads, count // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)

    return change


def _hugging_face_name(name: str) -> str | None:
    if name in _NAMES:
        return _NAMES[name]
    match = _LAYER.fullmatch(name)
    if match and match[2] in _LAYER_NAMES:
        return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"
    return None


def _read(tensor: Any) -> HostArray:
    shape = tuple(int(n) for n in reversed(tensor.shape))
    kind = tensor.tensor_type
    if kind == GGMLQuantizationType.Q4_1 and len(shape) == 2:
        blocks = tensor.data.reshape(shape[0], -1, 20)
        scales = blocks[:, :, 0:2].copy().view(np.float16)[..., 0].astype(np.float32)
        biases = blocks[:, :, 2:4].copy().view(np.float16)[..., 0].astype(np.float32)
        packed = blocks[:, :, 4:]
        codes = np.concatenate([packed & 15, packed >> 4], axis=-1).reshape(shape)
        return QuantizedArray(codes, scales, biases, bits=4, group_size=_BLOCK)
    if kind == GGMLQuantizationType.Q8_0 and len(shape) == 2:
        blocks = tensor.data.reshape(shape[0], -1, 34)
        scales = blocks[:, :, 0:2].copy().view(np.float16)[..., 0].astype(np.float32)
        codes = (blocks[:, :, 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8).reshape(shape)
        return QuantizedArray(codes, scales, -128.0 * scales, bits=8, group_size=_BLOCK)
    if kind in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
        return np.asarray(tensor.data, dtype=np.float32).reshape(shape)
    return dequantize(tensor.data, kind).reshape(shape)


def tensors(reader: GGUFReader, config: Mapping[str, Any]) -> Tensors:
    """The matrices under Hugging Face names and in Hugging Face row order."""
    named: dict[str, Any] = {}
    for tensor in reader.tensors:
        name = _hugging_face_name(tensor.name)
        if name is None and tensor.name != "rope_freqs.weight":
            raise CheckpointError(
                f"the tensor {tensor.name} belongs to no llama", "it is another architecture's file"
            )
        if name is None:
            raise CheckpointError(
                "rope factors per dimension in GGUF are not supported", "use the safetensors directory"
            )
        named[name] = tensor

    def read(name: str) -> HostArray:
        array = _read(named[name])
        if ".q_proj." in name:
            return map_rows(array, _interleaved_to_halves(config["num_attention_heads"]))
        if ".k_proj." in name:
            return map_rows(array, _interleaved_to_halves(config["num_key_value_heads"]))
        return array

    return Tensors(named, read)

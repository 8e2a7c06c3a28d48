"""What published configurations of a family say otherwise than its tiny checkpoint: random weights, transformers' own
files, its logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from distance import ENVELOPE, apart
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextScaledWordEmbedding

from tokenline.checkpoint.checkpoint import Tensors
from tokenline.client import Model
from tokenline.errors import CheckpointError
from tokenline.models import FAMILIES
from tokenline.models.layers import Embedding
from tokenline.ops import open_ops

VOCABULARY = 259
TOKENS = [int(token) for token in np.random.default_rng(11).integers(0, VOCABULARY, 130)]

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
SHORT, LONG = [1.0, 1.2, 1.3, 1.5], [1.5, 2.0, 4.0, 8.0]


def longrope(trained: int) -> dict[str, Any]:
    return {
        "original_max_position_embeddings": trained,
        "rope_scaling": {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG},
    }


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2 without caps, untied": (
        "gemma2",
        {
            "head_dim": 8,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "sliding_window": 20,
            "tie_word_embeddings": False,
        },
    ),
    "gemma2 with biases": ("gemma2", {"head_dim": 8, "attention_bias": True, "sliding_window": 20}),
    "gemma3 with its own pattern": ("gemma3_text", {"head_dim": 8, "sliding_window": 20}),
    "gemma3 of transformers 4": (
        "gemma3_text",
        {
            "head_dim": 8,
            "sliding_window": 20,
            "sliding_window_pattern": 2,
            "rope_theta": 5e5,
            "rope_local_base_freq": 2e4,
            "rope_scaling": {"rope_type": "linear", "factor": 4.0},
            "final_logit_softcapping": 9.0,
        },
    ),
    "mistral without a window": ("mistral", {"sliding_window": None, "rope_theta": 1e6}),
    "mistral with heads of their own size": ("mistral", {"sliding_window": 33, "head_dim": 24}),
    "phi3 with a window": ("phi3", {"sliding_window": 40}),
    "phi3 within its trained context": ("phi3", longrope(512)),
    "phi3 beyond its trained context": ("phi3", longrope(64)),
    "smollm3 that names its layers": (
        "smollm3",
        {"no_rope_layers": [0, 1, 1, 0], "attention_bias": True, "tie_word_embeddings": False},
    ),
    "smollm3 that slides": ("smollm3", {"use_sliding_window": True, "sliding_window": 25}),
    "olmo2 with every head its own keys": ("olmo2", {"num_key_value_heads": 4, "attention_bias": True}),
    "glm4 with other heads": ("glm4", {"head_dim": 16, "attention_bias": False}),
    "glm4 turned whole": ("glm4", {"head_dim": 8, "partial_rotary_factor": 1.0}),
    "cohere2 with biases and its default scale": (
        "cohere2",
        {"attention_bias": True, "sliding_window": 20, "sliding_window_pattern": 2},
    ),
    "granite, untied, with biases": (
        "granite",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.3,
            "embedding_multiplier": 6.0,
            "logits_scaling": 3.0,
        },
    ),
    "granite without multipliers": ("granite", {"tie_word_embeddings": True}),
}


def save_tokenizer(directory: Path) -> None:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={each: index for index, each in enumerate(alphabet)}, merges=[])
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(directory)


def saved(model: transformers.PreTrainedModel, directory: Path) -> np.ndarray:
    """Writes it as transformers does; what it says of the tokens. Norms and biases as they never are when new."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(directory)
    save_tokenizer(directory)
    with torch.inference_mode():
        return model(input_ids=torch.tensor([TOKENS])).logits[0].float().numpy()


def ours(directory: Path, backend: str) -> np.ndarray:
    with Model(str(directory), backend=backend, dtype="float32", threads=1) as model:
        return model.logits(TOKENS)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_a_variant_says_what_transformers_says(variant: str, backend: str, tmp_path: Path) -> None:
    family, changes = VARIANTS[variant]
    config = transformers.AutoConfig.for_model(family, **(SMALL | changes))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    theirs = saved(model, tmp_path)
    assert apart(ours(tmp_path, backend), theirs) < ENVELOPE


def test_the_language_model_of_a_gemma3_that_sees_images(backend: str, tmp_path: Path) -> None:
    text = transformers.Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=20, sliding_window_pattern=2)
    vision = transformers.SiglipVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    theirs = saved(transformers.Gemma3ForConditionalGeneration(config).eval(), tmp_path)
    assert apart(ours(tmp_path, backend), theirs) < ENVELOPE
    with pytest.raises(CheckpointError, match="513 tokens"):
        Model(str(tmp_path), backend=backend, dtype="float32", threads=1, context_length=513)


def test_a_gemma3_says_only_what_is_not_the_default(backend: str, tmp_path: Path) -> None:
    """As the 4B model's configuration is published: no heads, no head size, no norms' epsilon, no pattern."""
    said = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 6,
        "sliding_window": 20,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }
    torch.manual_seed(1)
    config = transformers.Gemma3TextConfig(**said, initializer_range=0.3, attn_implementation="eager")
    theirs = saved(transformers.Gemma3ForCausalLM(config).eval(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(said | {"model_type": "gemma3_text"}))
    assert apart(ours(tmp_path, backend), theirs) < ENVELOPE


def test_a_scaled_embedding_rounds_as_gemma3s_in_bfloat16(backend: str) -> None:
    """The scale before the product: 1.375 times the root of 3072 is 76.5, and 76.0 where it is not rounded first."""
    table = torch.randn(64, 3072, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    table[:, 0] = 1.375
    theirs = Gemma3TextScaledWordEmbedding(64, 3072, padding_idx=None, embed_scale=3072**0.5)
    theirs = theirs.to(torch.bfloat16)
    theirs.weight.data.copy_(table)
    expected = theirs(torch.arange(64)).float().detach().numpy()
    assert expected[0, 0] == 76.5
    ops = open_ops(backend, "bfloat16", 1)
    held = Tensors(["embed.weight"], lambda _: table.float().numpy())
    mine = Embedding(ops, held, "embed", 64, 3072, scale=3072**0.5)
    [said] = ops.read([mine(ops.array(np.arange(64)[None]))])
    np.testing.assert_array_equal(said[0], expected)


def test_a_tied_minicpm_is_a_granite_with_its_multipliers(backend: str, tmp_path: Path) -> None:
    """As MiniCPM's first checkpoints are published: the file does not say that it is tied, and holds no head."""
    torch.manual_seed(1)
    config = transformers.GraniteConfig(
        **SMALL,
        tie_word_embeddings=True,
        embedding_multiplier=12.0,
        residual_multiplier=1.4 / 4**0.5,  # scale_depth over the root of the layers
        attention_multiplier=8**-0.5,
        logits_scaling=32 / 16,  # width over dim_model_base
        attn_implementation="eager",
    )
    theirs = saved(transformers.GraniteForCausalLM(config).eval(), tmp_path)
    said = {"model_type": "minicpm", "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16}
    keys = [*SMALL, "rms_norm_eps", "rope_parameters"]
    written = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({key: written[key] for key in keys} | said))
    assert apart(ours(tmp_path, backend), theirs) < ENVELOPE


class AnyMatrix(Tensors):
    """Holds whatever is asked for."""

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("family", "changes", "named"),
    [
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma2", {"hidden_activation": "relu"}, "relu"),
        ("cohere2", {"use_qk_norm": True}, "use_qk_norm"),
        ("phi3", {"hidden_act": "gelu"}, "hidden_act"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
        ("mistral", {"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ("minicpm", {"sparse_config": {"block_size": 64}}, "sparse_config"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(family: str, changes: dict[str, Any], named: str) -> None:
    config = SMALL | {"head_dim": 8} | changes
    with pytest.raises(CheckpointError, match=named):
        FAMILIES[family](open_ops("torch", "float32", 1), config, AnyMatrix([], np.zeros), None)

"""Layer taps: what transformers says after each layer, and the same forward that decode runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from tokenline.client import Model
from tokenline.errors import RequestError

TOKENS = [256, 72, 105, 32, 116, 104, 101, 114, 101]


def test_a_layer_leaves_what_transformers_says(
    tiny: Model, tiny_oracle: transformers.LlamaForCausalLM
) -> None:
    taps = tiny.taps(TOKENS)
    blocks = ("attention_norm", "attention", "mlp_norm", "mlp")
    layers = [f"layers.{layer}.{block}" for layer in range(3) for block in blocks]
    assert list(taps) == ["embedding", *layers, "norm", "head"]
    with torch.inference_mode():
        told = tiny_oracle(torch.tensor([TOKENS]), output_hidden_states=True)
    names = ["embedding", "layers.0.mlp", "layers.1.mlp", "norm"]
    for name, expected in zip([*names, "head"], [*told.hidden_states, told.logits], strict=True):
        assert taps[name].dtype == np.float32
        np.testing.assert_allclose(taps[name], expected[0].numpy(), rtol=1e-4, atol=1e-4, err_msg=name)


def test_the_residual_stream_is_what_the_blocks_add_up_to(
    tiny: Model, tiny_oracle: transformers.LlamaForCausalLM
) -> None:
    taps = tiny.taps(TOKENS)
    first = tiny_oracle.model.layers[0]
    with torch.inference_mode():
        normed = first.input_layernorm(torch.tensor(taps["embedding"]))
        added = first.mlp(torch.tensor(taps["layers.0.mlp_norm"]))
    np.testing.assert_allclose(taps["layers.0.attention_norm"], normed.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        taps["layers.0.mlp"], taps["layers.0.attention"] + added.numpy(), rtol=1e-4, atol=1e-4
    )


def test_taps_are_the_forward_of_logits_bit_for_bit(tiny: Model) -> None:
    assert np.array_equal(tiny.taps(TOKENS)["head"], tiny.logits(TOKENS))


def test_no_tokens_cannot_be_tapped(tiny: Model) -> None:
    with pytest.raises(RequestError, match="0 tokens cannot be forwarded"):
        tiny.taps([])

"""Checkpoints and loaded models that the engine's tests share.

The tiny checkpoint is made by transformers, which is also its oracle: a llama of random weights over a byte-level
vocabulary, so that any text runs through it in milliseconds.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))
from asking import save_checkpoint
from drawn_arrays import draws
from serving import serving
from speaking import TEMPLATE, Speaking
from toy_models import Spoken, save_spoken

from tokenline.checkpoint.alias import resolve
from tokenline.checkpoint.open import open_checkpoint
from tokenline.client import Model
from tokenline.models import FAMILIES
from tokenline.models import Model as Network
from tokenline.ops import BACKENDS, Ops, open_ops

TINY_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level_tokenizer() -> tokenizers.Tokenizer:
    """256 bytes and the specials of ChatML; no merges."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return made


@pytest.fixture(scope="session")
def byte_tokenizer() -> tokenizers.Tokenizer:
    return byte_level_tokenizer()


@pytest.fixture(scope="session")
def tiny_oracle() -> transformers.LlamaForCausalLM:
    """The oracle: transformers, float32."""
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=259,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=256,
        eos_token_id=258,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def tiny_checkpoint(
    tiny_oracle: transformers.LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same weights as a Hugging Face directory, in several shards."""
    directory = tmp_path_factory.mktemp("checkpoints") / "tiny-llama"
    tiny_oracle.save_pretrained(directory, max_shard_size="200KB")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(),
        eos_token="<|im_end|>",
        bos_token="<|endoftext|>",
        chat_template=TINY_TEMPLATE,
    ).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def own_draws(request: pytest.FixtureRequest) -> None:
    """A test's numbers do not depend on which tests its process ran before."""
    draws.begin(request.node.name)


@pytest.fixture
def ops(backend: str) -> Ops:
    """The array surface of each backend, its counters at zero."""
    return open_ops(backend, "float32", 1)


@pytest.fixture(scope="session")
def tiny(tiny_checkpoint: Path, backend: str) -> Iterator[Model]:
    """The tiny checkpoint, loaded, on each backend."""
    with Model(str(tiny_checkpoint), backend=backend, dtype="float32", threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def tiny_torch(tiny_checkpoint: Path) -> Iterator[Model]:
    """The tiny checkpoint for the transports, to which the backend is all the same."""
    with Model(str(tiny_checkpoint), backend="torch", dtype="float32", threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def served_url(tiny_torch: Model) -> Iterator[str]:
    """The tiny checkpoint behind HTTP, on a free port."""
    with serving(tiny_torch) as url:
        yield url


@pytest.fixture(scope="session")
def spoken_checkpoint(byte_tokenizer: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_spoken(tmp_path_factory.mktemp("spoken") / "spoken", byte_tokenizer, TEMPLATE, "<|im_end|>")


@pytest.fixture(scope="session")
def speaking(spoken_checkpoint: Path) -> Iterator[Speaking]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "spoken", Spoken)
        with (
            Model(str(spoken_checkpoint), backend="torch", dtype="float32", threads=1) as model,
            serving(model) as url,
        ):
            yield Speaking(model, url)


@pytest.fixture(scope="session")
def small(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """For the server's bounds: one row at a time and one that waits, answers that last, an adapter "polite"."""
    checkpoint, adapter = save_checkpoint(tmp_path_factory.mktemp("small"), tiny_checkpoint)
    held: dict[str, Any] = {"parallel": 1, "max_queue": 1, "adapters": {"polite": adapter}}
    with Model(str(checkpoint), backend="torch", dtype="float32", threads=1, **held) as model:
        yield model


@pytest.fixture(scope="session")
def small_url(small: Model) -> Iterator[str]:
    with serving(small) as url:
        yield url


@pytest.fixture
def network(tiny_checkpoint: Path, ops: Ops) -> tuple[Ops, Network]:
    """The tiny checkpoint below the engine: the array surface and the family."""
    checkpoint = open_checkpoint(str(tiny_checkpoint), FAMILIES)
    return ops, FAMILIES[checkpoint.family](ops, checkpoint.config, checkpoint.tensors, None)


@pytest.fixture(scope="session")
def checkpoint_path() -> Path:
    """SmolLM2-135M; PARITYGATE_CHECKPOINT names a copy that is already on disk."""
    return resolve(os.environ.get("PARITYGATE_CHECKPOINT", "smollm2-135m"))


@pytest.fixture(scope="session")
def gguf_oracle(checkpoint_path: Path) -> transformers.PreTrainedTokenizerFast:
    """SmolLM2's tokenizer as transformers reads it from the same file, which takes it ten seconds."""
    return transformers.AutoTokenizer.from_pretrained(checkpoint_path.parent, gguf_file=checkpoint_path.name)


@pytest.fixture(scope="session")
def torch_model(checkpoint_path: Path) -> Iterator[Model]:
    with Model(str(checkpoint_path), backend="torch", dtype="float32", threads=1) as model:
        yield model


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was logged since it was asked last."""

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    with caplog.at_level(logging.WARNING, "tokenline"):
        yield lines

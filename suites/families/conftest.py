"""Every family's tiny checkpoint: loaded by us on each backend, and by the oracles in float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from below import Below
from family_oracles import transformers_of
from gguf_forms import FORMS
from gguf_written import Written, written_as
from tiny_checkpoints import MODELS, NAMES, tokens_of

from tokenline.checkpoint.open import open_checkpoint
from tokenline.client import Model
from tokenline.models import FAMILIES
from tokenline.ops import BACKENDS, open_ops


@pytest.fixture(scope="session", params=NAMES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def checkpoint(family: str) -> Path:
    return MODELS / family / "checkpoint"


@pytest.fixture(scope="session")
def model(checkpoint: Path, backend: str) -> Iterator[Model]:
    with Model(str(checkpoint), backend=backend, dtype="float32", threads=1) as model:
        yield model


@pytest.fixture(scope="session")
def below(checkpoint: Path, backend: str) -> Below:
    ops = open_ops(backend, "float32", 1)
    opened = open_checkpoint(str(checkpoint), FAMILIES)
    return Below(ops, FAMILIES[opened.family](ops, opened.config, opened.tensors, None))


@pytest.fixture(scope="session")
def tokens(checkpoint: Path) -> list[int]:
    return tokens_of(checkpoint)


@pytest.fixture(scope="session")
def transformers_logits(checkpoint: Path, tokens: list[int]) -> np.ndarray:
    """What transformers says of the 300 tokens, float32 [tokens, V]."""
    return transformers_of(checkpoint).logits(tokens)


@pytest.fixture(scope="session", params=sorted(FORMS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return written_as(request.param, tmp_path_factory.mktemp(request.param))

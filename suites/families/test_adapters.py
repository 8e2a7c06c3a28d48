"""Adapters in every family, against PEFT over transformers; one and the same model without one stays what it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distance import ENVELOPE, apart
from family_oracles import transformers_of
from peft_adapters import adapted_logits, projections, save_adapters

from tokenline.client import Model

KINDS = ("lora", "dora")
TOKENS = 120


@pytest.fixture(scope="module")
def adapters(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    model = transformers_of(checkpoint).model
    asked = {"r": 4, "lora_alpha": 8, "target_modules": projections(model)}
    kinds = {kind: {**asked, "use_dora": kind == "dora"} for kind in KINDS}
    return save_adapters(model, tmp_path_factory.mktemp("adapters"), kinds)


@pytest.fixture(scope="module")
def adapted(checkpoint: Path, backend: str, adapters: dict[str, Path]) -> Iterator[Model]:
    with Model(str(checkpoint), backend=backend, dtype="float32", threads=1, adapters=adapters) as model:
        yield model


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_pefts(
    adapted: Model,
    checkpoint: Path,
    tokens: list[int],
    transformers_logits: np.ndarray,
    adapters: dict[str, Path],
    kind: str,
) -> None:
    theirs = adapted_logits(transformers_of(checkpoint).model, adapters[kind], tokens[:TOKENS])
    assert apart(theirs, transformers_logits[:TOKENS]) > 0.1
    assert apart(adapted.logits(tokens[:TOKENS], adapter=kind), theirs) < ENVELOPE


def test_the_base_beside_adapters_is_the_base_alone_bit_for_bit(
    adapted: Model, model: Model, tokens: list[int]
) -> None:
    adapted.logits(tokens[:TOKENS], adapter="lora")
    assert np.array_equal(adapted.logits(tokens), model.logits(tokens))

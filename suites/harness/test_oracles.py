"""What drives the oracles: one that forgets what it was fed is found out, and those that are asked do not forget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paritygate.arms.hugging_face import load_tokenizer
from paritygate.case import Case
from paritygate.golden.decoders import MlxLmDecoder, TransformersDecoder
from paritygate.golden.oracles import Answerer, OracleError

MODELS = Path(__file__).parents[2] / "golden" / "models"
CASE = Case(name="lighthouse", max_tokens=8, prompt="The lighthouse keeper lit")


class Counting:
    """Says the number of tokens so far; `forgets`, only of those that it was fed last."""

    def __init__(self, forgets: bool) -> None:
        self._forgets, self._count = forgets, 0

    def begin(self) -> None:
        self._count = 0

    def next_logits(self, token_ids: list[int]) -> np.ndarray:
        self._count = len(token_ids) + (0 if self._forgets else self._count)
        return self._row(self._count)

    def whole_logits(self, token_ids: list[int]) -> np.ndarray:
        return self._row(len(token_ids))

    def _row(self, count: int) -> np.ndarray:
        row = np.zeros(300, np.float32)
        row[40 + count] = 5.0
        return row


def test_an_oracle_that_forgets_between_steps_is_refused() -> None:
    tokenizer = load_tokenizer(MODELS / "qwen3" / "checkpoint")
    answer = Answerer(Counting(forgets=False), tokenizer, "toy", 1, {}).answer(CASE)
    assert len(answer.token_ids) == 8
    with pytest.raises(OracleError, match="toy says other logits step by step than in one forward"):
        Answerer(Counting(forgets=True), tokenizer, "toy", 1, {}).answer(CASE)


@pytest.mark.parametrize(
    ("oracle", "family"),
    [("transformers", "mamba2"), ("transformers", "lfm2"), ("transformers", "gemma3"), ("mlx-lm", "lfm2")],
)
def test_step_by_step_is_one_forward(oracle: str, family: str) -> None:
    checkpoint = MODELS / family / "checkpoint"
    decoder = {"transformers": TransformersDecoder, "mlx-lm": MlxLmDecoder}[oracle](checkpoint, 1)
    answer = Answerer(decoder, load_tokenizer(checkpoint), oracle, 1, {}).answer(CASE)
    assert "lamp" in answer.text  # the text that the checkpoint knows by heart

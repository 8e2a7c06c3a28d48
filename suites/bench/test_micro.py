"""Micro benchmarks for the desk: what one token costs beside the model. `pytest suites/bench/test_micro.py`.

As tests they check the answer of what they time, once; pytest-benchmark prints the times. Nothing is gated here.
"""

from __future__ import annotations

import numpy as np
import pytest

from tokenline.decode.finish import FinishCause, FinishInput, finish_step
from tokenline.decode.loop_detection import detect_loop
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.decode.sampling import RowDraw, RowParameters, sample
from tokenline.ops import open_ops
from tokenline.request import LoopDetection, Sampling
from tokenline.text.stop import StopMatcher

VOCABULARY = 49152
SETTINGS = {
    "greedy": Sampling(),
    "top-k and top-p": Sampling(temperature=0.8, top_k=40, top_p=0.9),
    "penalties": Sampling(repetition_penalty=1.1, penalty_window=-1),
}


class Hooks:
    """A row that nothing but max tokens ends."""

    def stop_text(self, token: int) -> bool:
        return False

    bound_stopped = structured_stopped = context_bound_due = lambda self: False

    def clear_cache(self) -> None: ...


@pytest.mark.parametrize("settings", SETTINGS)
def test_sample_one_row(benchmark, settings: str) -> None:
    ops = open_ops("torch", "float32", 1)
    logits = np.random.default_rng(7).normal(0, 3, (1, VOCABULARY)).astype(np.float32)
    logits[0, 123] = 60.0  # the only likely token, whatever the settings
    row = RowDraw(RowParameters(SETTINGS[settings], 1, None), 0, [1, 2, 3])
    array = ops.array(logits)
    drawn = benchmark.pedantic(sample, (ops, array, [row]), rounds=20, warmup_rounds=2)
    assert ops.read([drawn.tokens])[0].tolist() == [123]


def test_finish_one_token(benchmark) -> None:
    def step() -> FinishCause | None:
        row = FinishInput(token=5, eos={2}, generated=[9] * 255, history=[], max_tokens=256)
        return finish_step(row, Hooks())

    assert benchmark.pedantic(step, rounds=20, iterations=50, warmup_rounds=2) is FinishCause.LENGTH


def test_detect_loop_in_a_long_answer(benchmark) -> None:
    generated = list(range(1, 1000)) + [7, 8, 9] * 20
    period = benchmark.pedantic(
        detect_loop, (generated, LoopDetection()), rounds=20, iterations=20, warmup_rounds=2
    )
    assert period == 3


def test_plan_a_long_prompt(benchmark) -> None:
    plan = benchmark.pedantic(PrefillPlan.of, (100_000, range(100, 100_000, 100)), rounds=10, warmup_rounds=1)
    assert plan.split_points[-2:] == (99_999, 100_000)


def test_match_stop_strings(benchmark) -> None:
    def push_all() -> tuple[str, bool]:
        matcher = StopMatcher(["</answer>", "\n\n\n", "User:"])
        said = ""
        for piece in ["The answer", " is", " 42", ".", "\n\n", "</ans", "wer>", "more"]:
            text, stopped = matcher.push(piece)
            said += text
            if stopped:
                return said, True
        return said + matcher.flush(), False

    assert benchmark.pedantic(push_all, rounds=20, iterations=20) == ("The answer is 42.\n\n", True)

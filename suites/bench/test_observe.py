"""Fresh processes over an engine that sleeps: what is measured is what it slept, of the checkout that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from paritygate.bench.observation import Workload
from paritygate.bench.pairs import BenchError, Side, observe_side
from paritygate.bench.work import work_faults

ENGINE = '''
import time
from types import SimpleNamespace


class Model:
    def stream(self, prompt, *, max_tokens, **params):
        ids = list(range(10)) if isinstance(prompt, str) else list(prompt)
        time.sleep(PREFILL * len(ids))
        for token in range(max_tokens):
            time.sleep(DECODE if token else 0)
            yield SimpleNamespace(text="x", result=None)
        count = max_tokens
        yield SimpleNamespace(text="", result={
            "text": "x" * count, "prompt_token_ids": ids, "token_ids": list(range(count)), "logprobs": None,
            "finish_reason": "length", "finish_cause": "Length",
            "usage": {"prompt_tokens": len(ids), "completion_tokens": count, "total_tokens": len(ids) + count},
            "timings": {}, "manifest": {"weight_bytes": 1000, "backend": "asleep"},
            "counters": {"prefill_pieces": [[0, len(ids)]], "cached_tokens": CACHED, "prefill_forwards": 1,
                         "decode_forwards": count - 1, "host_reads": count, "head_positions": count, "max_rows": 1},
        })

    def reset_cache(self): ...
    def close(self): ...


def load(model, **options):
    print("a library that prints to stdout must not break the observation")
    return Model()
'''  # fmt: skip


def checkout(root: Path, *, decode: float = 0.01, prefill: float = 0.001, cached: int = 0) -> Path:
    package = root / "engine" / "tokenline"
    package.mkdir(parents=True)
    settings = f"DECODE, PREFILL, CACHED = {decode}, {prefill}, {cached}\n"
    (package / "__init__.py").write_text(settings + ENGINE)
    (package / "errors.py").write_text("class TokenlineError(Exception): ...\n")
    return root


def side(root: Path, **environment: str) -> Side:
    workload = Workload(
        kind="tokenline", options={"backend": "torch"}, model="any", prompt_tokens=64, decode_tokens=12
    )
    return Side("base", root, workload, environment)


def test_an_observation_is_of_the_sleeping_engine(tmp_path: Path) -> None:
    seen = observe_side(side(checkout(tmp_path)))
    assert seen.engine_file == str(tmp_path / "engine" / "tokenline" / "__init__.py")
    assert seen.manifest["backend"] == "asleep"
    assert len(seen.token_ns) == 11
    # Sleeping never ends early; a busy machine may end it late.
    assert 10e6 <= seen.decode_ns < 30e6
    assert 1e6 <= seen.prefill_ns < 3e6
    assert 10e6 <= seen.first_token_ns < 30e6
    assert seen.prefill_counters["prefill_pieces"] == [[0, 64]]
    assert 1e8 < seen.read_bytes_per_second < 1e13
    assert work_faults(seen) == []


def test_another_engine_than_the_sides_is_refused(tmp_path: Path) -> None:
    other = checkout(tmp_path / "other")
    with pytest.raises(
        BenchError, match=r"other/engine/tokenline/__init__.py was imported where .*mine/engine"
    ):
        observe_side(side(checkout(tmp_path / "mine"), PYTHONPATH=str(other / "engine")))


def test_a_prompt_that_came_from_the_cache_is_no_prefill(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="the prompt cache had part of the prompt"):
        observe_side(side(checkout(tmp_path, cached=3)))


def test_a_process_that_hangs_or_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="base: no observation within"):
        observe_side(side(checkout(tmp_path / "slow", prefill=1.0)), timeout=1.5)
    broken = checkout(tmp_path / "broken")
    (broken / "engine" / "tokenline" / "__init__.py").write_text("raise RuntimeError('no weights here')")
    with pytest.raises(BenchError, match=r"base: the measuring process failed: .*no weights here"):
        observe_side(side(broken))

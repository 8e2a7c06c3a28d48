"""DRY against llama.cpp's sampler, and its breakers as the strings that a caller gives."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import llama_samplers
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_rows import OPS, processed, same_distribution

from tokenline.client import Model
from tokenline.decode.sampling import BreakerTable
from tokenline.decode.sampling.dry import repetitions
from tokenline.ops import BACKENDS

VOCABULARY = 6
tokens = st.integers(0, VOCABULARY - 1)


def breakers_of(sequences: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, ...]]]:
    found: dict[int, list[tuple[int, ...]]] = {}
    for head, *tail in sequences:
        found.setdefault(head, []).append(tuple(tail))
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.lists(tokens, max_size=60),
    st.lists(st.lists(tokens, min_size=1, max_size=3), max_size=3),
    st.floats(0.25, 3, width=32),
    st.sampled_from([1.0, 1.5, 2.0]),
    st.integers(1, 4),
    st.sampled_from([1, 5, 20, 200]),
    st.sampled_from(BACKENDS),
)
def test_whatever_the_history_llama_subtracts_the_same(
    history: list[int],
    breakers: list[list[int]],
    multiplier: float,
    base: float,
    allowed: int,
    window: int,
    name: str,
) -> None:
    logits = np.linspace(-1, 1, VOCABULARY, dtype=np.float32)[None]
    theirs, _ = (
        llama_samplers.dry(multiplier, base, allowed, window, breakers).accept(history).apply(logits[0])
    )
    ours = processed(
        OPS[name], logits, dry_multiplier=multiplier, dry_base=base, dry_allowed_length=allowed,
        dry_window=window, history=history, breakers=breakers_of(breakers),
    )  # fmt: skip
    # Penalties grow to where float32 has no fractions: then both are as good as minus infinity.
    likely = theirs > theirs.max() - 60
    assert np.isfinite(ours).all() or base > 1
    same_distribution(np.where(likely, ours, -np.inf), np.where(likely, theirs, -np.inf))


def test_the_example_of_the_definition() -> None:
    """llama.cpp's own comment: after `a b c c b c y a b c` the next c would repeat three tokens, b one, y two."""
    a, b, c, y = range(4)
    window = [a, b, c, c, b, c, y, a, b, c]
    assert repetitions(window, {}, 1, 100) == {c: 3, b: 1, y: 2}
    assert repetitions(window, {}, 2, 100) == {c: 3, y: 2}
    assert repetitions(window, {b: [()]}, 1, 100) == {c: 1, b: 1, y: 1}


def test_a_long_history_of_one_token_is_quick() -> None:
    found = repetitions([5] * 65536, {}, 2, 160)
    assert found == {5: 160}


@pytest.fixture(scope="module")
def table(tiny_torch: Model) -> BreakerTable:
    return BreakerTable(tiny_torch.tokenizer)


def test_a_breaker_is_found_in_every_spelling(tiny_torch: Model, table: BreakerTable) -> None:
    """A byte-level vocabulary has one spelling: the first byte, then the others."""
    encode = tiny_torch.tokenizer.encode
    newline, a, b = (encode(text)[0] for text in "\nab")
    assert table.breakers(["\n"]) == {newline: [()]}
    assert table.breakers(["ab", "\n"]) == {a: [(b,)], newline: [()]}


def test_breakers_reach_the_row_from_the_request(tiny_torch: Model) -> None:
    """The same text with a breaker between its repetitions and without, on the path that every caller takes."""
    tokenizer = tiny_torch.tokenizer
    prompt = tokenizer.encode("abcd xabcd xabcd x")
    common = {"max_tokens": 1, "logprobs": 20, "ignore_eos": True, "dry_multiplier": 4.0}
    free = tiny_torch.generate(prompt, max_tokens=1, logprobs=20, ignore_eos=True)
    broken = tiny_torch.generate(prompt, dry_breakers=["x"], **common)
    unbroken = tiny_torch.generate(prompt, dry_breakers=["\n"], **common)
    assert broken["logprobs"] == free["logprobs"]
    assert unbroken["logprobs"] != free["logprobs"]
    assert unbroken["manifest"]["sampling"]["dry_breakers"] == ["\n"]


def test_smollm_breakers_are_all_tokens_that_hold_a_newline(torch_model: Model) -> None:
    tokenizer = torch_model.tokenizer
    found = BreakerTable(tokenizer).breakers(["\n"])
    expected = {t for t in range(tokenizer.vocabulary_size) if b"\n" in tokenizer.token_bytes(t)}
    assert set(found) == expected
    assert len(found) > 100
    assert all(tails == [()] for tails in found.values())


def test_breakers_mean_the_same_over_http(served_url: str, tiny_torch: Model) -> None:
    text = "abcd xabcd xabcd x"
    for breakers in (["x"], ["\n"], []):
        asked = {"max_tokens": 6, "dry_multiplier": 4.0, "dry_breakers": breakers, "ignore_eos": True}
        body = {"prompt": text, "logprobs": 1, "return_details": True, **asked}
        answer = httpx.post(f"{served_url}/v1/completions", json=body, timeout=60).json()["choices"][0]
        expected = tiny_torch.generate(text, **asked)
        assert answer["details"]["token_ids"] == expected["token_ids"]
        assert answer["details"]["manifest"]["sampling"] | {"seed": 0} == expected["manifest"]["sampling"] | {
            "seed": 0
        }

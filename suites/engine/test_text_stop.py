"""Stop strings: any text, any cut, any stops."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenline.text.stop import StopMatcher
from tokenline.text.text_stream import TextStream
from tokenline.text.tokenizer import Tokenizer

ALPHABET = st.text(alphabet="ab本🎉\n", max_size=40)
STOPS = st.lists(st.text(alphabet="ab本🎉\n", min_size=1, max_size=5), max_size=8)


def until_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """By hand, the slow way: the match that ends first, and of those the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def streamed(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    sent = []
    for piece in pieces:
        text, stopped = matcher.push(piece)
        sent.append(text)
        if stopped:
            break
    sent.append(matcher.flush())
    return sent, matcher.stopped


@st.composite
def cut(draw: st.DrawFn) -> list[str]:
    text = draw(ALPHABET)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=10)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@given(pieces=cut(), stops=STOPS)
@settings(max_examples=500)
def test_every_cut_gives_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    sent, stopped = streamed(stops, pieces)
    assert ("".join(sent), stopped) == until_stop("".join(pieces), stops)


@given(pieces=cut(), stops=STOPS)
def test_nothing_is_sent_that_a_stop_string_could_still_take_back(
    pieces: list[str], stops: list[str]
) -> None:
    """Whatever came next, the text sent so far would stay; and no more is held back than that needs."""
    matcher = StopMatcher(stops)
    text = sent = ""
    for piece in pieces:
        out, stopped = matcher.push(piece)
        text, sent = text + piece, sent + out
        if stopped:
            return
        starts = [stop[:length] for stop in stops for length in range(1, len(stop) + 1)]
        possible = max((len(start) for start in starts if text.endswith(start)), default=0)
        assert sent == text[: len(text) - possible]


@pytest.mark.parametrize(
    ("stops", "pieces", "sent"),
    [
        (["STOP"], ["a ST", "OP b"], "a "),
        (["STOP"], ["a STO", "MP"], "a STOMP"),
        (["aab"], ["aa", "ab"], "a"),
        (["ab", "b"], ["a", "b"], ""),
        (["abcd", "bc"], ["abcd"], "a"),
        (["\n\n"], ["one\n", "\ntwo"], "one"),
        (["本🎉"], ["日本", "🎉"], "日"),
        ([], ["all of it"], "all of it"),
    ],
)
def test_known_cases(stops: list[str], pieces: list[str], sent: str) -> None:
    assert "".join(streamed(stops, pieces)[0]) == sent


def test_the_tail_is_flushed_once_and_nothing_follows_a_stop() -> None:
    matcher = StopMatcher(["xyz"])
    assert matcher.push("..xy") == ("..", False)
    assert matcher.flush() == "xy"
    assert matcher.flush() == ""
    matcher = StopMatcher(["xyz"])
    assert matcher.push("..xyz..") == ("..", True)
    assert matcher.push("more") == ("", True)
    assert matcher.flush() == ""


def test_thousands_of_stop_strings_cost_no_more_per_character() -> None:
    """Work is counted, not timed: every step back in the matcher was paid for by a step forward."""
    stops = [f"{'a' * 50}{number:04d}" for number in range(5000)]
    steps = 0

    class Counted(StopMatcher):
        def _after(self, state: int, character: str) -> int:
            nonlocal steps
            while state and character not in self._next[state]:
                state = self._fallback[state]
                steps += 1
            return self._next[state].get(character, 0)

    matcher = Counted(stops)
    steps = 0
    text = ("a" * 49 + "b" + "a" * 60 + "x") * 50
    assert matcher.push(text) == (text, False)
    assert 0 < steps <= len(text)
    assert matcher.push("a" * 52 + "4999")[1]


def test_a_stop_string_is_found_across_tokens_and_inside_one(byte_tokenizer: Tokenizer) -> None:
    tokens = byte_tokenizer.encode("日本語 stop 日")
    stream = TextStream(byte_tokenizer, ["語 st"])
    sent = []
    for token in tokens:
        text, stopped = stream.push(token)
        sent.append(text)
        if stopped:
            break
    assert "".join(sent) == "日本"
    assert len(sent) == len("日本語 st".encode())
    assert stream.finish() == ""


def test_what_is_held_back_by_both_is_flushed_once(byte_tokenizer: Tokenizer) -> None:
    stream = TextStream(byte_tokenizer, ["ab\ufffdc"])
    pushed = [
        stream.push(token) for token in [*byte_tokenizer.encode("xab"), *byte_tokenizer.encode("日")[:2]]
    ]
    assert "".join(text for text, _ in pushed) == "x"
    assert stream.finish() == "ab\ufffd"
    assert stream.finish() == ""


@pytest.fixture(scope="module")
def byte_tokenizer() -> Tokenizer:
    import tokenizers

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={character: index for index, character in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return Tokenizer(backend, eos_token_ids=frozenset(), bos_token_id=None, add_bos=False)

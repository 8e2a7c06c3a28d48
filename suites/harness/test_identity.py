"""Comparisons of hand-made streams: the verdict, and what the sentence names."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from paritygate.case import Case, Constraint
from paritygate.compare.constraint import unmet
from paritygate.compare.identity import EXECUTION, SETTINGS, compare
from paritygate.stream import Position, Stream, TopToken
from paritygate.verdict import Verdict

Make = Callable[..., Stream]
FLOOR = 0.02


def test_the_same_is_identical(stream: Make) -> None:
    found = compare(stream([1, 2, 3]), stream([1, 2, 3], arm="b"), floor=FLOOR)
    assert (found.verdict, found.headline) == (Verdict.IDENTICAL, "3 tokens, 9 bytes: identical")


def test_a_divergence_names_index_tokens_top_two_and_decision(stream: Make) -> None:
    found = compare(stream([1, 2, 3], gaps=[1, 0.5, 1]), stream([1, 9, 3], gaps=[1, 0.25, 1]), floor=FLOOR)
    assert found.verdict is Verdict.DIVERGED
    assert "first differs at token 1: 'w9 ' (9) where 'w2 ' (2) is expected" in found.headline
    assert found.details["index"] == 1
    assert found.details["decided"] is True
    assert found.details["at"]["reference"]["top"] == [[2, "w2 ", -0.1], [102, "w102 ", -0.6]]
    assert found.details["at"]["candidate"]["gap"] == pytest.approx(0.25)
    assert [block["op"] for block in found.details["diff"]] == ["equal", "replace", "equal"]


def test_one_small_gap_is_a_near_tie(stream: Make) -> None:
    found = compare(stream([1, 2], gaps=[1, 0.5]), stream([1, 9], gaps=[1, 0.01]), floor=FLOOR)
    assert found.details["decided"] is False
    assert "near-tie" in found.headline


def test_a_shorter_answer_is_a_verdict_not_a_pass(stream: Make) -> None:
    found = compare(stream([1, 2, 3]), stream([1, 2]), floor=FLOOR)
    assert found.verdict is Verdict.LENGTH
    assert found.headline.startswith("2 tokens where 3 are expected")


@pytest.mark.parametrize("who", ["both", "one"])
def test_nothing_passes_empty(stream: Make, who: str) -> None:
    empty = stream([], text="")
    found = compare(empty if who == "both" else stream([1]), empty, floor=FLOOR)
    assert found.verdict is Verdict.NOT_RUN
    assert "empty: nothing was compared" in found.headline


def test_manifests_come_before_tokens(stream: Make) -> None:
    sampling = {"temperature": 0.5, "seed": 1}
    ours = stream([1], manifest={"sampling": sampling, "dtype": "float32"})
    theirs = stream([2], manifest={"sampling": sampling | {"temperature": 0.7}, "dtype": "bfloat16"})
    found = compare(ours, theirs, floor=FLOOR, settings=SETTINGS + EXECUTION)
    assert found.verdict is Verdict.SETUP_ERROR
    assert (
        found.headline
        == "the arms were not set alike: sampling.temperature 0.5 and 0.7, dtype 'float32' and 'bfloat16'"
    )


def test_a_setting_that_one_side_does_not_tell_is_no_difference(stream: Make) -> None:
    ours, theirs = (
        stream([1], manifest={"engine": e, "template_hash": h}) for e, h in (("a", None), ("b", "00"))
    )
    assert compare(ours, theirs, floor=FLOOR).verdict is Verdict.IDENTICAL
    # Of one engine None is what it resolved.
    both = [
        msgspec.structs.replace(side, manifest=side.manifest | {"engine": "a"}) for side in (ours, theirs)
    ]
    assert compare(*both, floor=FLOOR).verdict is Verdict.SETUP_ERROR


@pytest.mark.parametrize("bits", ["weight_bits", "weight_group", "kv_bits"])
def test_fewer_bits_are_a_setting(stream: Make, bits: str) -> None:
    ours, theirs = (stream([1], manifest={"engine": "a", bits: value}) for value in (None, 32))
    found = compare(ours, theirs, floor=FLOOR, settings=SETTINGS + EXECUTION)
    assert found.verdict is Verdict.SETUP_ERROR
    assert found.headline == f"the arms were not set alike: {bits} None and 32"


def test_the_unused_seed_of_a_greedy_row_is_no_setting(stream: Make) -> None:
    ours, theirs = (stream([1], manifest={"sampling": {"temperature": 0, "seed": s}}) for s in (1, 2))
    assert compare(ours, theirs, floor=FLOOR).verdict is Verdict.IDENTICAL


def test_a_pushed_end_of_sequence_is_named(stream: Make) -> None:
    reference = stream([5, 6], finish_cause="Eos", finish_reason="stop")
    end = Position(token_id=2, token="<|im_end|>", logprob=0.0, top=(TopToken(2, "<|im_end|>", 0.0),))
    reference = msgspec.structs.replace(reference, positions=(*reference.positions, end))
    found = compare(reference, stream([5, 6, 2], finish_cause="Eos", finish_reason="stop"), floor=FLOOR)
    assert found.verdict is Verdict.LENGTH
    assert found.headline.startswith(
        "the end-of-sequence token '<|im_end|>' (2) was pushed into the answer, at 2"
    )


def test_a_lost_flush_is_named(stream: Make) -> None:
    found = compare(stream([1, 2]), stream([1, 2], text="w1 w"), floor=FLOOR)
    assert found.verdict is Verdict.DIVERGED
    assert found.headline.startswith(
        "the last flush is missing: the tokens agree, but the text lacks its tail '2 '"
    )


def test_no_tokens_agree_that_were_not_told(stream: Make) -> None:
    """A shorter text is a lost tail where as many tokens are counted, else it may be a shorter answer."""

    def text_only(ids: list[int], **more: object) -> Stream:
        return stream(ids, **({"token_ids": None, "positions": None, "prompt_token_ids": None} | more))

    lost = compare(text_only([1, 2]), text_only([1, 2], text="w1 w"), floor=FLOOR).headline
    assert lost.startswith(
        "the last flush is missing: both count 2 tokens and the text agrees (4 bytes), but lacks its tail '2 '"
    )
    for shorter in (text_only([1]), text_only([1], usage=None)):
        found = compare(text_only([1, 2]), shorter, floor=FLOOR)
        assert found.headline.startswith("the text differs from byte 3")
        assert "tokens agree" not in found.headline


@pytest.mark.parametrize("tail", ["\r\n", "\n", " "])
def test_bytes_are_compared_not_looks(stream: Make, tail: str) -> None:
    found = compare(stream([1], text="a\nb"), stream([1], text="a\nb" + tail), floor=FLOOR)
    assert (found.verdict, found.details["byte"]) == (Verdict.DIVERGED, 3)


def test_half_characters_are_named(stream: Make) -> None:
    found = compare(stream([1], text="a🎉b"), stream([1], text="a\ufffd\ufffdb"), floor=FLOOR)
    assert "2 more U+FFFD" in found.headline


def test_a_stop_string_that_does_not_stop_is_named(stream: Make) -> None:
    reference = stream([1, 2], text="w1 ", finish_cause="StopSequence", finish_reason="stop")
    found = compare(reference, stream([1, 2, 3]), floor=FLOOR)
    assert found.headline.startswith("the stop string did not end the answer")


def test_finish_and_usage_count(stream: Make) -> None:
    found = compare(stream([1]), stream([1], finish_cause="ContextExhausted"), floor=FLOOR)
    assert found.headline == "finish_cause is ContextExhausted where Length is expected"
    usage = msgspec.structs.replace(stream([1]).usage, completion_tokens=2)
    found = compare(stream([1]), stream([1], usage=usage), floor=FLOOR)
    assert found.headline == "usage says 2 completion_tokens where 1 are expected"


def test_other_prompt_tokens_are_told_before_the_answer(stream: Make) -> None:
    found = compare(stream([1]), stream([2], prompt_token_ids=(1, 2, 4)), floor=FLOOR)
    assert found.headline.startswith("the prompt was read as other tokens, from 2 on: [4] where [3]")


def test_another_partition_is_shown_beside_the_divergence(stream: Make) -> None:
    ours = stream([1], counters={"prefill_pieces": [[0, 2], [2, 3]]})
    theirs = stream([2], counters={"prefill_pieces": [[0, 3]]})
    found = compare(ours, theirs, floor=FLOOR)
    assert "the prefill partition differs: [[0, 2], [2, 3]] against [[0, 3]]" in found.headline
    assert found.details["prefill_pieces"] == [[[0, 2], [2, 3]], [[0, 3]]]


def test_logprobs_count_where_they_are_claimed(stream: Make) -> None:
    other = stream([1], gaps=[0.999])
    assert compare(stream([1]), other, floor=FLOOR).verdict is Verdict.IDENTICAL
    found = compare(stream([1]), other, floor=FLOOR, exact_logprobs=True)
    assert found.verdict is Verdict.DIVERGED
    # The token's own logprob is alike: what is told is the alternative that differs.
    assert "other logprobs from token 0: -1.099 where -1.1 is expected for 'w101 '" in found.headline


@pytest.mark.parametrize(
    ("constraint", "text", "says"),
    [
        (Constraint(json_object=True), '{"a": 1}', ""),
        (Constraint(json_object=True), '{"a": 1', "is not valid JSON"),
        (Constraint(json_object=True), "[1]", "is no JSON object"),
        (Constraint(json_schema={"type": "array"}), "[1]", ""),
        (Constraint(json_schema={"type": "array"}), '"x"', "is no JSON array"),
        (Constraint(regex="[ab]+c"), "abac", ""),
        (Constraint(regex="[ab]+c"), "abacd", "does not match"),
        (Constraint(choice=("yes", "no")), "no", ""),
        (Constraint(choice=("yes", "no")), "no.", "is none of the choices"),
    ],
)
def test_an_answer_keeps_its_constraint(stream: Make, constraint: Constraint, text: str, says: str) -> None:
    case = Case(name="c", max_tokens=9, prompt="x", constraint=constraint)
    found = unmet(case, stream([1], text=text, finish_reason="stop"))
    assert (found is None) == (says == "")
    assert found is None or says in found.headline
    # What was cut off is the beginning of what it would have been.
    assert unmet(case, stream([1], text=text, finish_reason="length")) is None


def test_a_constraint_is_one_thing() -> None:
    for given in ({}, {"regex": "a", "choice": ("b",)}):
        with pytest.raises(ValueError, match="give one of"):
            Constraint(**given)

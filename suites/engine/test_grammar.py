"""Grammars, token by token, over every kind of tokenizer: what a row may say is exactly what llguidance accepts."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from grammar_oracle import accepts
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_models import scripted_tokenizer
from toy_tokenizers import KINDS

from tokenline.decode.grammar import KEPT, Grammar, GrammarTable
from tokenline.decode.grammar_source import constraint_grammar, schema_grammar, source_of
from tokenline.request import Request
from tokenline.text.text_stream import TextStream
from tokenline.text.tokenizer import Tokenizer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "sizes": {
            "type": "array",
            "items": {"type": "integer", "minimum": -9, "maximum": 120},
            "maxItems": 3,
        },
        "kind": {"enum": ["é", "日本", "🎉", None, 1.5]},
    },
    "required": ["name", "sizes", "kind"],
    "additionalProperties": False,
}
EMOJI = {"lark_grammar": 'start: " "? ("日" | "🎉" | "é")+ "."'}
SPELLS = [kind for kind in KINDS if kind != "metaspace"]


def walk(grammar: Grammar, tokenizer: Tokenizer, seed: int, limit: int = 400) -> list[int]:
    """Tokens drawn uniformly from what is allowed, until nothing can follow or the end was drawn."""
    draw, tokens = np.random.default_rng(seed), []
    while len(tokens) < limit and not grammar.complete:
        allowed = np.flatnonzero(grammar.allowed()).tolist()
        assert allowed, "a grammar that is not complete allows something"
        token = draw.choice(allowed)
        if token in tokenizer.eos_token_ids:
            assert grammar.accepts
            return tokens
        tokens.append(int(token))
        grammar.advance(tokens[-1])
    return tokens


def text_of(tokenizer: Tokenizer, tokens: list[int]) -> str:
    stream = TextStream(tokenizer, exact=True)
    return "".join(stream.push(token)[0] for token in tokens) + stream.finish()


@pytest.mark.parametrize("kind", SPELLS)
@pytest.mark.parametrize("made", [schema_grammar(SCHEMA), EMOJI], ids=["schema", "lark"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_drawn_is_valid(kind: str, made: dict[str, Any], seed: int) -> None:
    tokenizer, source = KINDS[kind], source_of(made)
    grammar = GrammarTable(tokenizer, tokenizer.vocabulary_size).open(source)
    tokens = walk(grammar, tokenizer, seed)
    assert grammar.complete
    text = text_of(tokenizer, tokens)
    assert accepts(source, text.encode())
    assert text.encode() == b"".join(map(tokenizer.token_bytes, tokens))
    if made is not EMOJI:
        assert jsonschema_rs.is_valid(SCHEMA, json.loads(text))


@pytest.mark.parametrize(
    ("asked", "valid", "invalid"),
    [
        ({"regex": r'a/b"[0-9]{2,3}\n?'}, ['a/b"12', 'a/b"123\n'], ["a/b", 'a/b"1', 'xa/b"12']),
        ({"regex": "a\n[/]\\/é"}, ["a\n//é"], ["a//é", "a\n//"]),
        ({"choice": ("yes", 'n"o\\\n', "é\x07🎉")}, ["yes", 'n"o\\\n', "é\x07🎉"], ["", "ye", "yesno"]),
        ({"grammar": 'start: "a" b+\nb: /[0-9]/'}, ["a1", "a12"], ["a", "1"]),
        ({"json_object": True}, ["{}", '{"a": [1, {"b": null}]}', '{\n  "a": 1\n}'], ["[]", "1", "{", '{"a":      1}']),
        ({"json_schema": {}}, ["1", "null", '["a"]'], ["", "tru", "1 2"]),
        ({"json_schema": {"type": "string", "maxLength": 2}}, ['"é🎉"'], ['"abc"', "1"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_what_each_constraint_means(asked: dict[str, Any], valid: list[str], invalid: list[str]) -> None:
    grammar = constraint_grammar(Request(prompt="x", **asked))
    assert grammar is not None
    assert [text for text in valid if not accepts(source_of(grammar), text.encode())] == []
    assert [text for text in invalid if accepts(source_of(grammar), text.encode())] == []


@pytest.mark.parametrize("kind", SPELLS)
@given(seed=st.integers(0, 999), back=st.integers(0, 30), taken=st.integers(0, 30))
@settings(max_examples=15, deadline=None)
def test_rewound_is_never_having_stepped(kind: str, seed: int, back: int, taken: int) -> None:
    tokenizer = KINDS[kind]
    table = GrammarTable(tokenizer, tokenizer.vocabulary_size)
    grammar, fresh = (table.open(source_of(schema_grammar(SCHEMA))) for _ in range(2))
    tokens = walk(grammar, tokenizer, seed, limit=taken + back)
    kept = max(len(tokens) - back, 0)
    grammar.rewind(len(tokens) - kept)
    for token in tokens[:kept]:
        fresh.advance(token)
    assert (grammar.complete, grammar.accepts) == (fresh.complete, fresh.accepts)
    assert grammar.allowed().tolist() == fresh.allowed().tolist()
    assert walk(grammar, tokenizer, seed) == walk(fresh, tokenizer, seed)


def test_more_than_there_was_cannot_be_taken_back() -> None:
    grammar = GrammarTable(KINDS["byte-level"], 300).open(source_of(EMOJI))
    with pytest.raises(ValueError, match="go back by 1"):
        grammar.rewind(1)


def test_rows_of_one_grammar_do_not_see_each_other() -> None:
    tokenizer = KINDS["byte-level"]
    table, source = GrammarTable(tokenizer, tokenizer.vocabulary_size), source_of(schema_grammar(SCHEMA))
    first, second = table.open(source), table.open(source)
    before = second.allowed().tolist()
    walk(first, tokenizer, 1, limit=20)
    assert second.allowed().tolist() == before == table.open(source).allowed().tolist()


def test_what_no_token_stands_for_is_never_allowed() -> None:
    """A network's vocabulary may be wider than its tokenizer's; special tokens are no text."""
    tokenizer = KINDS["byte-level"]
    grammar = GrammarTable(tokenizer, tokenizer.vocabulary_size + 70).open(
        source_of({"lark_grammar": "start: /(?s:.)*/"})
    )
    allowed = grammar.allowed()
    assert len(allowed) == tokenizer.vocabulary_size + 70
    assert not allowed[tokenizer.vocabulary_size :].any()
    end = next(token for token, name in tokenizer.special_tokens.items() if name == "<|end|>")
    assert not allowed[end]
    assert allowed[ord("a")]


def test_the_end_is_allowed_where_the_text_may_end_and_every_end_is() -> None:
    tokenizer = KINDS["byte-level"]
    two = Tokenizer(tokenizer._plain, eos_token_ids=frozenset({260, 261}), bos_token_id=None, add_bos=False)
    grammar = GrammarTable(two, two.vocabulary_size).open(source_of({"lark_grammar": 'start: "a" "b"?'}))
    assert np.flatnonzero(grammar.allowed()).tolist() == [ord("a")]
    grammar.advance(ord("a"))
    assert np.flatnonzero(grammar.allowed()).tolist() == [ord("b"), 260, 261]
    assert not grammar.complete
    grammar.advance(ord("b"))
    assert grammar.complete


def test_a_checkpoint_without_an_end_has_grammars_too() -> None:
    tokenizer = KINDS["byte-level"]
    assert not tokenizer.eos_token_ids
    grammar = GrammarTable(tokenizer, tokenizer.vocabulary_size).open(
        source_of({"lark_grammar": 'start: "ab"'})
    )
    assert len(grammar.allowed()) == tokenizer.vocabulary_size
    for character in b"ab":
        assert not grammar.complete
        grammar.advance(character)
    assert grammar.complete


def test_a_token_that_is_not_allowed_is_an_error_and_allows_nothing() -> None:
    tokenizer = scripted_tokenizer(["a", "b"])
    grammar = GrammarTable(tokenizer, 3).open(source_of({"lark_grammar": 'start: "aa"'}))
    grammar.advance(1)
    assert grammar.error is not None
    assert not grammar.complete
    assert not grammar.allowed().any()


def test_faults_are_one_line() -> None:
    table = GrammarTable(KINDS["byte-level"], 300)
    for source, what in [
        ({"lark_grammar": "start: a"}, 'unknown name: "a"'),
        ({"lark_grammar": "start: /(/"}, "unclosed group"),
        ({"json_schema": {"type": "objct"}}, "Invalid type: objct"),
        ({"json_schema": {"pattern": "("}}, "unclosed group"),
    ]:
        fault = table.fault(source_of(source))
        assert fault is not None
        assert what in fault
        assert "\n" not in fault
        with pytest.raises(ValueError, match=re.escape(fault)):
            table.open(source_of(source))


def test_a_service_does_not_keep_every_grammar() -> None:
    table = GrammarTable(KINDS["byte-level"], 300)
    for number in range(KEPT + 9):
        table.open(source_of({"lark_grammar": f'start: "{number}"'}))
    kept = list(table._compiled)
    assert len(kept) == KEPT
    assert table.fault(source_of({"lark_grammar": 'start: "a fault is looked for"'})) is None
    assert list(table._compiled) == kept

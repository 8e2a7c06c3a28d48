"""What a request asks of its answer's form: the grammar that holds the row to it, and what takes the text apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tokenline.decode.grammar import Grammar, GrammarTable
from tokenline.decode.grammar_source import (
    CallRules,
    constraint_grammar,
    quoted,
    schema_grammar,
    source_of,
    whole_source,
)
from tokenline.errors import BackendError, RequestError
from tokenline.request import Request, named_tool
from tokenline.text.answer import END_THINK, THINK, Answer, Tools
from tokenline.text.chat_template import ChatTemplate
from tokenline.text.tokenizer import Tokenizer
from tokenline.text.tool_format import Function, ToolFormat, format_of

Thinks = Literal["none", "possible", "open"]


@dataclass(frozen=True)
class Structure:
    """For one row: its grammar at the start, that grammar's hash, and the reader of its message, each None where there
    is none; `marks` are special tokens that the reader needs to see."""

    grammar: Grammar | None = None
    grammar_hash: str | None = None
    answer: Answer | None = None
    marks: frozenset[int] = frozenset()


UNSTRUCTURED = Structure()


class StructureTable:
    """Makes them for one checkpoint; any thread may ask it."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, vocabulary_size: int) -> None:
        self._template = template
        self._grammars = GrammarTable(tokenizer, vocabulary_size)
        self._special = {name: token for token, name in tokenizer.special_tokens.items()}
        told = "" if template is None else template.source
        self._format = format_of(told)
        self._knows_thoughts = END_THINK in told or tokenizer.has_token(END_THINK)

    def check_tools(self, request: Request) -> None:
        """Raise RequestError for tools that the checkpoint's template cannot tell its model about."""
        if not request.tools or self._template is None:
            return
        if not self._template.takes_tools:
            raise RequestError(
                "the checkpoint's chat template takes no tools",
                "leave tools out, or use another model",
                param="tools",
            )
        if self._format is None:
            raise RequestError(
                "the checkpoint's chat template has calls written in a form that is not known here",
                'known are <tool_call> around JSON, and JSON with "name" and "parameters"',
                param="tools",
            )

    def of(self, request: Request, prompt_end: str, id_of: Callable[[int], str]) -> Structure:
        """Raises RequestError, naming the field, for what cannot be made a grammar of.

        `prompt_end` is the end of the prompt as text, which may open the thoughts; `id_of` the id of the call with an
        index.
        """
        thinks: Thinks = "none"
        if request.messages is not None and request.reasoning_format == "auto":
            thinks = self._thinks(prompt_end)
        functions = [Function.of(tool) for tool in request.tools] if request.tool_choice != "none" else []
        format = self._format if functions else None
        rules = None if format is None else _call_rules(request, format, functions)
        source = None
        constraint = constraint_grammar(request)
        if constraint is not None or rules is not None:
            source = whole_source(constraint, rules, thinks, self._mark)
        grammar = None if source is None else self._open(request, source)
        if request.messages is None:
            return Structure(grammar, _hash(source))
        tools = None
        if format is not None:
            tools = Tools(format, tuple(f.name for f in functions), rules is not None, id_of)
        marks = [format.opening, format.closing] if format is not None else []
        marks += [THINK, END_THINK] if thinks != "none" else []
        shown = frozenset(self._special[mark] for mark in marks if mark in self._special)
        return Structure(grammar, _hash(source), Answer(thinks, tools), shown)

    def _thinks(self, prompt_end: str) -> Thinks:
        """Whether an answer may begin with thoughts: the checkpoint's template, or its vocabulary, knows the mark."""
        if prompt_end.rstrip().endswith(THINK):
            return "open"
        return "possible" if self._knows_thoughts else "none"

    def _mark(self, text: str) -> str:
        if text in self._special:
            return f"<[{self._special[text]}]>"
        return quoted(text)

    def _open(self, request: Request, source: str) -> Grammar:
        try:
            return self._grammars.open(source)
        except ValueError as error:
            raise self._refusal(request, str(error)) from None
        except BackendError as error:
            field = request.constraint or ("tool_choice" if request.tool_choice != "auto" else "tools")
            raise RequestError(error.what, error.mend, param=field) from None

    def _refusal(self, request: Request, whole: str) -> RequestError:
        """Which part of the whole is at fault, and where; `whole` is what is wrong where no part is alone."""
        field = request.constraint
        constraint = constraint_grammar(request)
        if field is not None and constraint is not None:
            what = self._grammars.fault(source_of(constraint))
            if what is not None and field == "json_schema":
                return self._schema_refusal(request.json_schema or {}, field, what, lenient=False)
            if what is not None:
                what = what.rpartition("(in regex): ")[2] if field == "regex" else what
                return RequestError(f"{field}: {what}", "mend it, or leave it out", param=field)
        for index, tool in enumerate(request.tools):
            function = Function.of(tool)
            part = source_of(schema_grammar(function.parameters, lenient=not function.strict))
            what = self._grammars.fault(part)
            if what is not None:
                name = f"tools[{index}].function.parameters"
                return self._schema_refusal(function.parameters, name, what, lenient=not function.strict)
        return RequestError(f"the grammar cannot be used: {whole}", "ask for less", param=field or "tools")

    def _schema_refusal(
        self, schema: Mapping[str, Any], field: str, what: str, *, lenient: bool
    ) -> RequestError:
        """The deepest schema within this one that is at fault, and what is wrong there instead of `what`."""
        path, part = "$", schema
        deeper = True
        definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        while deeper:
            deeper = False
            for step, inner in _subschemas(part):
                fault = self._schema_fault({**definitions, **inner}, lenient)
                if fault is not None:
                    path, part, what, deeper = path + step, inner, fault, True
                    break
        return RequestError(f"{field}: {what}, at {path}", "mend the schema there", param=field)

    def _schema_fault(self, schema: Mapping[str, Any], lenient: bool) -> str | None:
        return self._grammars.fault(source_of(schema_grammar(schema, lenient=lenient)))


def _call_rules(request: Request, format: ToolFormat, functions: list[Function]) -> CallRules | None:
    """What a grammar must say of calls; None where the model is free, and nothing it writes needs to be one."""
    choice, parallel = request.tool_choice, request.parallel_tool_calls
    if isinstance(choice, dict):
        return CallRules(format, [f for f in functions if f.name == named_tool(choice)], parallel=False)
    if choice == "required" or request.constraint is not None:
        return CallRules(format, functions, parallel)
    if any(function.strict for function in functions):
        return CallRules(format, functions, parallel, free=True)
    return None


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path step, schema) of the schemas that stand directly in one, definitions last: they may be unused."""
    for key in ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"):
        named = schema.get(key)
        for name, inner in named.items() if isinstance(named, dict) else ():
            if isinstance(inner, dict):
                yield f".{key}.{name}", inner
        if key == "dependentSchemas":
            yield from _applied(schema)


def _applied(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in ("items", "additionalProperties", "contains", "propertyNames", "if", "then", "else"):
        if isinstance(inner := schema.get(key), dict):
            yield f".{key}", inner
    for key in ("prefixItems", "allOf", "anyOf", "oneOf"):
        listed = schema.get(key)
        for index, inner in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(inner, dict):
                yield f".{key}[{index}]", inner


def _hash(source: str | None) -> str | None:
    return None if source is None else hashlib.sha256(source.encode()).hexdigest()

"""The call graph finds a use however it is spelled, and lists what it cannot follow."""

from __future__ import annotations

import textwrap

import pytest

from paritygate.structure.callgraph import CallGraph, UseKind
from paritygate.structure.source import SourceError, Tree

LOOP = "def detect_loop(ids):\n    return None\n"
TARGET = "tool.loop.detect_loop"


def graph(**files: str) -> CallGraph:
    """A tree of package `tool` with the given modules beside tool/loop.py."""
    sources = {"src/tool/__init__.py": "", "src/tool/loop.py": LOOP}
    for name, text in files.items():
        sources[f"src/tool/{name}.py"] = textwrap.dedent(text)
    return CallGraph(Tree(sources, roots=("src",)))


def lines(found: CallGraph, target: str = TARGET) -> list[tuple[str, int]]:
    return sorted((use.path.rpartition("/")[2], use.line) for use in found.uses_of(target))


@pytest.mark.parametrize(
    "text",
    [
        "from tool.loop import detect_loop\ndetect_loop([])",
        "from tool.loop import detect_loop as looks\nlooks([])",
        "import tool.loop\ntool.loop.detect_loop([])",
        "import tool.loop as l\nl.detect_loop([])",
        "from tool import loop\nloop.detect_loop([])",
        "from . import loop\nloop.detect_loop([])",
        "from .loop import detect_loop\nx = [detect_loop(i) for i in ()]",
        "from tool.loop import *\ndetect_loop([])",
        "from tool import loop\ngetattr(loop, 'detect_loop')([])",
        "import functools, tool.loop\nf = functools.partial(tool.loop.detect_loop, [])",
        "from tool.loop import detect_loop\nrows = map(detect_loop, [])",
        "from tool import loop\nhandlers = {'x': loop.detect_loop}",
        "from tool.loop import detect_loop\nf = lambda row: detect_loop(row)",
    ],
)
def test_every_spelling_of_a_use_is_found(text: str) -> None:
    assert lines(graph(user=text)) == [("user.py", 2)]


def test_imports_inside_functions_and_local_aliases() -> None:
    found = graph(
        user="""
        def run(rows):
            from tool.loop import detect_loop
            check = detect_loop
            return check(rows)
        """
    )
    assert lines(found) == [("user.py", 4), ("user.py", 5)]
    assert {use.caller for use in found.uses_of(TARGET)} == {"tool.user.run"}


def test_a_re_export_is_followed_and_is_no_use_itself() -> None:
    package = "from tool.loop import detect_loop as spot\n__all__ = ['spot']\n"
    found = graph(**{"api/__init__": package, "user": "from tool.api import spot\nspot([])\n"})
    assert lines(found) == [("user.py", 2)]


def test_a_module_level_alias_is_followed() -> None:
    found = graph(names="from tool import loop\nspot = loop.detect_loop\n",
                  user="from tool.names import spot\n\nspot([])\n")  # fmt: skip
    assert lines(found) == [("names.py", 2), ("user.py", 3)]


def test_a_local_value_of_the_same_name_is_not_the_function() -> None:
    found = graph(
        user="""
        from tool.loop import detect_loop

        def run(detect_loop):
            return detect_loop([])
        """
    )
    assert lines(found) == []
    assert [use.target for use in found.dynamic()] == ["detect_loop"]


METHODS = """
class Base:
    def flush(self): ...

class Stream(Base):
    def push(self, token): return self.flush()
"""


@pytest.mark.parametrize(
    "text",
    [
        "from tool.stream import Stream\nStream().flush()",
        "from tool.stream import Stream\n\n\ndef f(s: Stream): s.flush()",
        "from tool.stream import Stream\n\n\ndef f(s: 'Stream | None'): s.flush()",
        "from tool.stream import Stream\n\n\ndef f(rows: list[Stream]):\n    for s in rows: s.flush()",
        "from tool.stream import Stream\ndef make() -> Stream: ...\n\ndef f():\n    s = make(); s.flush()",
        "from tool.stream import Stream\nclass Row:\n    def __init__(self): self.s = Stream()\n"
        "    def end(self):\n        self.s.flush()",
        "from tool.stream import Stream\nclass R:\n    s: Stream\n    def f(self):\n        self.s.flush()",
        "from tool.stream import Stream\nclass M(Stream):\n    def flush(self):\n\n        super().flush()",
        "from tool.stream import Stream\nstream = Stream()\ndef f():\n\n    stream.flush()",
        "from tool.stream import Stream\n\n\n\nx = [s.flush() for s in [Stream()]]",
    ],
)
def test_a_method_is_resolved_by_the_class_of_its_receiver(text: str) -> None:
    found = graph(stream=METHODS, user=text)
    users = [use for use in found.uses_of("tool.stream.Base.flush") if use.path.endswith("user.py")]
    assert len(users) == 1
    assert users[0].line == text.count("\n") + 1 or text.startswith(
        "from tool.stream import Stream\nStream()"
    )


def test_an_inherited_method_is_found_through_self() -> None:
    assert lines(graph(stream=METHODS), "tool.stream.Base.flush") == [("stream.py", 6)]


def test_a_receiver_that_nothing_tells_about_is_listed_by_name() -> None:
    found = graph(user="def end(row):\n    row.detect_loop()\n")
    assert lines(found) == []
    assert [(use.line, use.kind) for use in found.unresolved("detect_loop")] == [(2, UseKind.UNRESOLVED)]


def test_calls_without_a_name_are_listed() -> None:
    found = graph(
        user="""
        import importlib

        def f(table, k):
            table[k](1)
            importlib.import_module(k)
            eval(k)
        """
    )
    assert sorted(use.line for use in found.dynamic()) == [5, 6, 7]


def test_reaching_through_other_functions() -> None:
    found = graph(user="from tool.loop import detect_loop\ndef a(): b()\ndef b(): detect_loop([])\n")
    assert TARGET in found.called_by("tool.user.a")
    assert "tool.user.a" not in found.called_by("tool.user.b")


def test_source_that_does_not_parse_is_named() -> None:
    with pytest.raises(SourceError, match=r"src/tool/bad\.py:2"):
        graph(bad="x = 1\ndef (:\n").dynamic()

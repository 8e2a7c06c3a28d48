"""The structure rules that a policy can hold: each kind a type, each with a planted violation."""

from __future__ import annotations

import contextlib
from typing import Literal

import msgspec

from paritygate.structure.pattern import NoAstGrep, check_expression, lines_of_shape

# The fields of rules that hold a regular expression.
EXPRESSIONS = ("pattern", "defines", "compares", "computes")


class Planted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A violation that the rule must catch: text appended to `file` (made when absent), or one text replaced.

    The gate plants it in a copy of the tree on every run; a rule that misses its own violation is dead.
    """

    file: str
    append: str = ""
    find: str = ""
    replace: str = ""

    def __post_init__(self) -> None:
        if bool(self.append) == bool(self.find):
            raise ValueError(f"planted in {self.file}: give either append, or find and replace")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every rule says. Files are named by globs relative to the root (`engine/**/*.py`).

    `baseline` names a file of frozen violations, which pass as long as they are there; it may only shrink.
    """

    name: str
    why: str
    planted: Planted
    baseline: str = ""

    def __post_init__(self) -> None:
        for field in ("name", "why"):
            if not getattr(self, field).strip():
                raise ValueError(f"rule {self.name!r}: {field} is empty")
        for field in EXPRESSIONS:
            check_expression(getattr(self, field, ""), f"rule {self.name!r}: {field}")


class SingleCaller(Rule, frozen=True, tag="single-caller"):
    """`target` (a dotted function, method or class) is used only in the files of `only_from` and `allow`.

    Without `only_from` exactly one function may use it. A use is a call, or a reference that could be called
    later. A call whose receiver cannot be resolved counts when its name is the target's, unless `common_name`
    says that the name (`decode`, `close`) belongs to many: then it is listed.
    """

    target: str
    only_from: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    common_name: bool = False


class AbsentSymbol(Rule, frozen=True, tag="absent-symbol"):
    """No Python code defines, imports or uses the identifier or dotted name `symbol`; `allow` excepted."""

    symbol: str
    allow: tuple[str, ...] = ()


class AbsentPattern(Rule, frozen=True, tag="absent-pattern"):
    """No line of any file of the tree matches the regular expression `pattern`; `allow` excepted.

    `files` narrows the tree, by kind of file for example. Every allowed file must hold a match.
    """

    pattern: str
    files: tuple[str, ...] = ("**",)
    allow: tuple[str, ...] = ()


class OnlyPatternIn(Rule, frozen=True, tag="only-pattern-in"):
    """Lines that match the regular expression `pattern` stand in the files of `only_in`, each of which has one.

    They stand nowhere else in `files`, `allow` excepted.
    """

    pattern: str
    only_in: tuple[str, ...]
    files: tuple[str, ...] = ("**",)
    allow: tuple[str, ...] = ()


# What ast-grep's Python package reads; it ends the process for any other.
Language = Literal[
    "bash", "c", "cpp", "csharp", "css", "elixir", "go", "haskell", "html", "java", "javascript", "json", "kotlin",
    "lua", "php", "python", "ruby", "rust", "scala", "swift", "tsx", "typescript", "yaml",
]  # fmt: skip


def _check_shape(rule: Rule, language: str, structure: str) -> None:
    # Without ast-grep the rule is kept: the gate says what to install, and the other rules are judged.
    with contextlib.suppress(NoAstGrep):
        try:
            lines_of_shape("", language, structure)
        except ValueError as error:
            raise ValueError(f"rule {rule.name!r}: {error}") from error


class AbsentStructure(Rule, frozen=True, tag="absent-structure"):
    """Nothing in `files` has the shape of `structure`, an ast-grep pattern in `language`; `allow` excepted.

    `$NAME` stands for one node, `$$$` for any number of them. Every allowed file must hold a match.
    """

    language: Language
    structure: str
    files: tuple[str, ...]
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_shape(self, self.language, self.structure)


class OnlyStructureIn(Rule, frozen=True, tag="only-structure-in"):
    """What has the shape of `structure`, an ast-grep pattern in `language`, stands in the files of `only_in` alone.

    Each of them has one; `allow` is excepted.
    """

    language: Language
    structure: str
    only_in: tuple[str, ...]
    files: tuple[str, ...]
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_shape(self, self.language, self.structure)


class OnlyDefinedIn(Rule, frozen=True, tag="only-defined-in"):
    """Something is written in the files of `only_in` and nowhere else in `files`; it must be there.

    Regular expressions over whole identifiers say what: `defines` (a def, class or assigned name), `compares`
    (an operand of an order or equality test, also under another name inside a function), `computes` (an operand
    of arithmetic, `min`, `max`, `range` or a slice bound). What is handed to a function is that function's affair.
    """

    only_in: tuple[str, ...]
    defines: str = ""
    compares: str = ""
    computes: str = ""
    files: tuple[str, ...] = ("**/*.py",)
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.defines or self.compares or self.computes):
            raise ValueError(f"rule {self.name!r}: give at least one of defines, compares and computes")


class MustCall(Rule, frozen=True, tag="must-call"):
    """Every function whose dotted name matches a glob of `functions` reaches `target` by calls."""

    functions: tuple[str, ...]
    target: str


class Imports(Rule, frozen=True, tag="imports"):
    """Who may import whom.

    `layers` lists packages from the lowest up: a module imports from its own layer and below, every module
    under `package` is in a layer, and no import cycle exists. `forbid` names packages that the modules of
    `of` must not import, except in the files of `only_in` (which must, or the exception is dead).
    """

    package: str = ""
    layers: tuple[tuple[str, ...], ...] = ()
    of: str = ""
    forbid: tuple[str, ...] = ()
    only_in: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.layers) == bool(self.forbid):
            raise ValueError(f"rule {self.name!r}: give either package and layers, or of and forbid")
        if bool(self.layers) != bool(self.package) or bool(self.forbid) != bool(self.of):
            raise ValueError(f"rule {self.name!r}: layers go with package, forbid goes with of")


class Delegates(Rule, frozen=True, tag="delegates"):
    """The class `wrapper` forwards each public method of `wraps`: it defines it and calls that name."""

    wrapper: str
    wraps: str


AnyRule = (
    SingleCaller
    | AbsentSymbol
    | AbsentPattern
    | OnlyPatternIn
    | AbsentStructure
    | OnlyStructureIn
    | OnlyDefinedIn
    | MustCall
    | Imports
    | Delegates
)


class StructurePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The [structure] table: `roots` are what Python imports from, `exclude` what the tree leaves out."""

    roots: tuple[str, ...] = ("engine", "harness")
    exclude: tuple[str, ...] = ()
    rules: tuple[AnyRule, ...] = ()

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two structure rules are named {name!r}")

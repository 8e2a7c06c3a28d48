"""The file of the cases that have, or wait for, a golden."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from paritygate.case import Case, Constraint, Message, Sampler, one_prompt_needed
from paritygate.policy.reader import PolicyError, Reader, wrong_name
from paritygate.quantities import Natural, Tokens

PROMPTS = ("prompt", "prompt_file", "messages")


class CaseEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case as the file spells it: a long prompt may lie in a text file beside it."""

    name: str
    max_tokens: Tokens
    kind: str = "plain"
    prompt: str | None = None
    prompt_file: str | None = None
    messages: tuple[Message, ...] | None = None
    stop: tuple[str, ...] = ()
    sampler: Sampler = Sampler()
    constraint: Constraint | None = None
    ignore_eos: bool = False
    min_prompt_tokens: Natural = 0

    def __post_init__(self) -> None:
        given = [key for key in PROMPTS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"case {self.name}: {one_prompt_needed(given, PROMPTS)}")


def _case(entry: CaseEntry, directory: Path) -> Case:
    """Raises OSError or UnicodeDecodeError where the text beside the file cannot be read."""
    prompt = entry.prompt
    if entry.prompt_file is not None:
        prompt = (directory / entry.prompt_file).read_bytes().decode("utf-8")
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__ if name != "prompt_file"}
    return Case(**fields | {"prompt": prompt})


def load_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a TOML file with one `[[case]]` table each; names are unique. Raises PolicyError."""
    try:
        text = path.read_bytes().decode("utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{path}: {error}") from error
    reader = Reader(path, text, document, shown=str(path))
    reader.only_tables("case")
    entries: tuple[CaseEntry, ...] = reader.take(("case",), document.get("case", []), tuple[CaseEntry, ...])
    if not entries:
        raise PolicyError(f"{path}: no [[case]] in it: nothing could be tested")
    names = [entry.name for entry in entries]
    cases = []
    for index, entry in enumerate(entries):
        if entry.name in names[:index]:
            raise reader.error(("case", index), f"two cases are named {entry.name}")
        if why := wrong_name(entry.name):
            raise reader.error(("case", index), why)
        try:
            cases.append(_case(entry, path.parent))
        except (OSError, UnicodeDecodeError) as error:
            what = f"case {entry.name}: {entry.prompt_file}: {error}"
            raise reader.error(("case", index, "prompt_file"), what) from error
        except ValueError as error:
            raise reader.error(("case", index), str(error)) from error
    return tuple(cases)

"""`paritygate init`: ask, write, and read back what was written."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.prompt import Prompt

from paritygate.arms.command import PROMPT_PLACES
from paritygate.arms.dialects import DialectName
from paritygate.command_line import at_a_desk, refused
from paritygate.console import Console
from paritygate.init.draft import ENGINES, PROMPTS, draft
from paritygate.policy import POLICY_FILE, PolicyError, policy_of
from paritygate.quantities import MOST_TOKENS
from paritygate.verdict import Exit

console = Console()

QUESTIONS = {
    "url": ("Where does it listen?", "http://127.0.0.1:8000"),
    "dialect": (f"Which kind of server is it ({', '.join(get_args(DialectName))})?", "openai"),
    "served_model": ("The model's name in requests, empty for none", ""),
    "api_key_env": ("The environment variable that holds the key, empty for none", ""),
}
COMMANDS = {
    "server": "Its command; {model} and {port} are filled in",
    "command": "Its command; {model}, {prompt} and {max_tokens} are filled in",
}
# What a command must have a place for.
PLACES = {"server": ("{port}",), "command": PROMPT_PLACES}
WHY = {
    "server": "the port that it is asked at, so no question would reach it",
    "command": "the prompt, so every answer would be to nothing",
}


def _answer(question: str, given: str | None, default: str | None, *, yes: bool, option: str) -> str:
    """What an option says; else the default, where nothing may be asked; else what the person types."""
    if given is None and yes:
        if default is None:
            raise refused(f"{option} is missing: with --yes nothing is asked")
        return default
    told = (_asked(question, default) if given is None else given).strip()
    if not told and default != "":
        raise refused(f"{option} is empty: the policy needs it")
    return told


def _asked(question: str, default: str | None) -> str:
    try:
        return Prompt.ask(question, default=default, console=console) or ""
    except EOFError:
        raise refused("the answers ended: give the rest as options, or take defaults with --yes") from None
    except UnicodeDecodeError as error:
        raise refused(f"what was typed is no text in {error.encoding}: {error.reason}") from None
    except KeyboardInterrupt:
        raise refused("interrupted: nothing was written", Exit.INCONCLUSIVE) from None


def _words(engine: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise refused(f"--command cannot be split into words: {error} in {command!r}") from None
    places = PLACES[engine]
    if not any(place in word for word in words for place in places):
        raise refused(
            f"--command has no place for {WHY[engine]}: write {' or '.join(places)} among its words"
        )
    return words


def _refuse_dialect(told: str) -> None:
    if told not in get_args(DialectName):
        raise refused(f"no dialect {told!r}: there are {', '.join(get_args(DialectName))}")


def _options(engine: str, given: dict[str, str | None], *, yes: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ENGINES[engine].asks:
        option = "--" + name.replace("_", "-")
        if name == "command":
            options[name] = _words(
                engine, _answer(COMMANDS[engine], given[name], None, yes=yes, option=option)
            )
            continue
        question, default = QUESTIONS[name]
        told = _answer(question, given[name], default, yes=yes, option=option)
        if name == "dialect":
            _refuse_dialect(told)
        if told:
            options[name] = told
    return options


def _prompts(given: list[str] | None, *, yes: bool) -> list[str]:
    if given:
        if not all(prompt.strip() for prompt in given):
            raise refused("--prompt is empty: nothing would be asked")
        return given
    if yes:
        return list(PROMPTS)
    prompts: list[str] = []
    while True:
        default = PROMPTS[len(prompts)] if len(prompts) < len(PROMPTS) else ""
        told = _asked(f"Prompt {len(prompts) + 1} (empty ends)", default)
        if not told.strip():
            return prompts or list(PROMPTS)
        prompts.append(told)


def _refuse_unasked(engine: str, given: dict[str, str | None]) -> None:
    """Refuse what the options alone show to be wrong, before anything is asked."""
    if engine not in ENGINES:
        raise refused(f"no engine {engine!r}: there are {', '.join(ENGINES)}")
    for option, value in given.items():
        if value is not None and option not in ENGINES[engine].asks:
            raise refused(f"--{option.replace('_', '-')} says nothing about engine {engine!r}: leave it out")
    if (dialect := given["dialect"]) is not None:
        _refuse_dialect(dialect)


def init_command(
    engine: Annotated[str | None, typer.Option(help=f"One of {', '.join(ENGINES)}.")] = None,
    model: Annotated[str | None, typer.Option(help="The checkpoint that is tested.")] = None,
    name: Annotated[str | None, typer.Option(help="What the checkpoint is called in reports.")] = None,
    url: Annotated[str | None, typer.Option(help="Where a server listens.")] = None,
    command: Annotated[str | None, typer.Option(help="How a server or program is started.")] = None,
    dialect: Annotated[str | None, typer.Option(help="Which kind of server it is.")] = None,
    served_model: Annotated[str | None, typer.Option(help="The model's name in requests.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="The variable that holds the key.")] = None,
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt to compare; repeatable.")] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer.", min=1, max=MOST_TOKENS)] = 32,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take defaults.")] = False,
    root: Annotated[Path, typer.Option(help="Where the policy goes.", file_okay=False, exists=True)] = Path(),
) -> None:
    """Write a first paritygate.toml by asking. An existing one is never touched."""
    path = root / POLICY_FILE
    if os.path.lexists(path):
        raise refused(f"{path} exists already: edit it, or choose another --root")
    if not yes:
        at_a_desk("write a policy by asking", ", or answer with options and --yes")
    given = {
        "url": url,
        "command": command,
        "dialect": dialect,
        "served_model": served_model,
        "api_key_env": api_key_env,
    }
    if engine is not None:
        _refuse_unasked(engine, given)
    if engine is None and not yes:
        for key, one in ENGINES.items():
            console.print(f"  {key:14} {one.what}", markup=False, highlight=False)
    chosen = _answer("Which engine?", engine, "url", yes=yes, option="--engine")
    _refuse_unasked(chosen, given)
    known = ENGINES[chosen]
    where = ""
    if known.model:
        where = _answer(f"The model ({known.model})", model, None, yes=yes, option="--model")
    options = _options(chosen, given, yes=yes)
    called = name or Path(where).stem or options.get("served_model") or "model"
    text = draft(
        known,
        name=called,
        model=where,
        options=options,
        prompts=_prompts(prompt, yes=yes),
        max_tokens=max_tokens,
    )
    try:
        raw = text.encode("utf-8")
        policy = policy_of(raw, root)
        with path.open("xb") as file:
            file.write(raw)
    except UnicodeEncodeError as error:
        raise refused(f"an answer is no Unicode text: {error.object[error.start : error.end]!r}") from None
    except PolicyError as error:
        raise refused(f"these answers make no policy: {error}") from None
    except OSError as error:
        raise refused(f"{path} cannot be written: {error.strerror}") from None
    arms = " and ".join(policy.arms)
    console.print(
        f"wrote {path}: {arms}, {len(policy.cases)} cases, 1 claim",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    again = policy.invocation.command("verify", "--report", "out")
    console.print(f"next: {again}", markup=False, highlight=False, soft_wrap=True)

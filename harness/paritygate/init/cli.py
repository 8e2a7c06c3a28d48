"""`paritygate init`: ask, write, and read back what was written."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.prompt import Prompt

from paritygate.arms.dialects import DialectName
from paritygate.command_line import at_a_desk, refused
from paritygate.init.draft import ENGINES, PROMPTS, draft
from paritygate.policy import POLICY_FILE, PolicyError, load

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


def _answer(question: str, given: str | None, default: str | None, *, yes: bool, option: str) -> str:
    """What an option says; else the default, where nothing may be asked; else what the person types."""
    if given is not None:
        return given
    if yes:
        if default is None:
            raise refused(f"{option} is missing: with --yes nothing is asked")
        return default
    told = Prompt.ask(question, default=default, console=console)
    if not told and default is None:
        raise refused(f"{option} is empty: the policy needs it")
    return told or ""


def _refuse_dialect(told: str) -> None:
    if told not in get_args(DialectName):
        raise refused(f"no dialect {told!r}: there are {', '.join(get_args(DialectName))}")


def _options(engine: str, given: dict[str, str | None], *, yes: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ENGINES[engine].asks:
        option = "--" + name.replace("_", "-")
        if name == "command":
            words = shlex.split(_answer(COMMANDS[engine], given[name], None, yes=yes, option=option))
            if not words:
                raise refused("--command is empty: say what is started")
            options[name] = words
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
        return given
    if yes:
        return list(PROMPTS)
    prompts: list[str] = []
    while True:
        default = PROMPTS[len(prompts)] if len(prompts) < len(PROMPTS) else ""
        told = Prompt.ask(f"Prompt {len(prompts) + 1} (empty ends)", default=default, console=console)
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
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer.", min=1)] = 32,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take defaults.")] = False,
    root: Annotated[Path, typer.Option(help="Where the policy goes.", file_okay=False, exists=True)] = Path(),
) -> None:
    """Write a first paritygate.toml by asking. An existing one is never touched."""
    path = root / POLICY_FILE
    if path.exists():
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
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        policy = load(root)
    except (OSError, PolicyError) as error:
        raise refused(f"{path}: {error}") from None
    arms = " and ".join(policy.arms)
    console.print(
        f"wrote {path}: {arms}, {len(policy.cases)} cases, 1 claim", highlight=False, soft_wrap=True
    )
    again = policy.invocation.command("verify", "--report", "out")
    console.print(f"next: {again}", markup=False, highlight=False, soft_wrap=True)

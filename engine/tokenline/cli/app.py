"""The `tokenline` command: its subcommands, and how it ends."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenline.cli.chat import chat
from tokenline.cli.generate import generate, run
from tokenline.cli.models import models
from tokenline.cli.output import Interrupted, PipeClosed, say
from tokenline.cli.serve import serve
from tokenline.errors import RowError, TokenlineError

USAGE_EXIT = 2
ROW_EXIT = 1
INTERRUPT_EXIT = 130
# What a shell reports for a process that a closed pipe ended.
PIPE_EXIT = 141

app = typer.Typer(
    name="tokenline",
    help="Run language models: one answer, a conversation, or a server.",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
)
for command in (generate, run, chat, serve):
    app.command()(command)
app.add_typer(models, name="models")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # here: it reads the installed packages from disk

        print(f"tokenline {version('paritygate')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None: ...


def exit_code(arguments: list[str]) -> int:
    """Run one command: 0, 1 (a row failed), 2 (bad input), 130 (interrupted)."""
    try:
        try:
            code = app(args=arguments, prog_name="tokenline", standalone_mode=False)
            if code == INTERRUPT_EXIT:  # typer makes this of a KeyboardInterrupt
                raise Interrupted
            return int(code or 0)
        except PipeClosed:
            return PIPE_EXIT
        except (Interrupted, KeyboardInterrupt):
            say("interrupted")
            return INTERRUPT_EXIT
        except RowError as error:
            say(str(error))
            return ROW_EXIT
        except TokenlineError as error:
            say(str(error))
            return USAGE_EXIT
        except typer.TyperException as error:
            say(f"{_one_line(error.format_message())}: see {_help_of(error)}")
            return USAGE_EXIT
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            say(f"{place}{error.strerror or error}: check that it can be read and written")
            return USAGE_EXIT
    except KeyboardInterrupt:  # once more, while the first was being told
        return INTERRUPT_EXIT


def _one_line(message: str) -> str:
    return " ".join(message.split()).rstrip(".")


def _help_of(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context is not None else "tokenline --help"

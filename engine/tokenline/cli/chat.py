"""`tokenline chat`: a conversation, a turn per line."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from tokenline.cli.answer_options import ConstraintOptions
from tokenline.cli.generate import raise_if_failed, stream_answer
from tokenline.cli.model_options import ModelOptions
from tokenline.cli.options import SamplingOptions, takes_options
from tokenline.cli.output import Interrupted, say, write
from tokenline.errors import RequestError

PROMPT = "> "


@takes_options
def chat(
    model: ModelOptions,
    sampling: SamplingOptions,
    constraint: ConstraintOptions,
    system: Annotated[str | None, typer.Option("--system", help="What the model is told first.")] = None,
) -> None:
    """Talk; /reset forgets the conversation, /exit or Ctrl-D ends it, Ctrl-C cuts an answer short."""
    if sys.stdin is None:
        raise RequestError("there is nothing to read a turn from: stdin is closed", "leave stdin open")
    interactive = sys.stdin.isatty()
    beginning: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
    messages = list(beginning)
    asked = {**constraint.fields(), "adapter": model.one_adapter}  # before the seconds that loading takes
    loaded = model.load()
    try:
        if interactive:
            say("a turn per line; /reset forgets the conversation, /exit ends it")
        while (line := _next_line(interactive)) is not None:
            match line.strip():
                case "":
                    continue
                case "/exit":
                    return
                case "/reset":
                    messages = list(beginning)
                    continue
            turn = [*messages, {"role": "user", "content": line}]
            try:
                result = stream_answer(loaded, sampling.request(messages=tuple(turn), **asked))
            except RequestError as error:
                if not interactive:
                    raise
                say(str(error))
                continue
            write("\n")
            raise_if_failed(result)
            if result["finish_reason"] == "cancelled" and not interactive:
                raise Interrupted
            # Without its thoughts, which templates leave out of what has been said.
            messages = [*turn, {"role": "assistant", "content": result["message"]["content"]}]
    finally:
        loaded.close()


def _next_line(interactive: bool) -> str | None:
    if interactive:
        import readline  # noqa: F401 - line editing and history for input(), which is all it takes

        try:
            return input(PROMPT)
        except EOFError:
            write("\n")
            return None
    data = sys.stdin.buffer.readline()
    try:
        return data.decode().rstrip("\r\n") if data else None
    except UnicodeDecodeError:
        raise RequestError(
            "a line of the conversation is not UTF-8", "send UTF-8", param="messages"
        ) from None

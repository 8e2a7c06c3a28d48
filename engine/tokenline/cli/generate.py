"""`tokenline generate` continues a text; `tokenline run` gives one answer through the chat template."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokenline.cli.answer_options import ConstraintOptions, ToolOptions
from tokenline.cli.input import reading
from tokenline.cli.model_options import ModelOptions
from tokenline.cli.options import SamplingOptions, parsed_ids, takes_options
from tokenline.cli.output import Interrupted, say, write, write_json
from tokenline.errors import RequestError, RowError
from tokenline.request import Request, validate

if TYPE_CHECKING:
    from tokenline.client import Model
    from tokenline.generation import Generation

PromptText = Annotated[str | None, typer.Option("-p", "--prompt", help="The text.")]
PromptFile = Annotated[Path | None, typer.Option("--prompt-file", help="The text, from a file; - is stdin.")]
Json = Annotated[bool, typer.Option("--json", help="Print the whole result as one JSON object.")]
Repeat = Annotated[
    int, typer.Option("--repeat", min=1, help="With --json: run it so often on one loaded model.")
]


@takes_options
def generate(
    model: ModelOptions,
    sampling: SamplingOptions,
    constraint: ConstraintOptions,
    prompt: PromptText = None,
    prompt_file: PromptFile = None,
    token_ids: Annotated[str | None, typer.Option("--token-ids", help="The prompt as ids: 1,2,3.")] = None,
    json: Json = False,
    repeat: Repeat = 1,
) -> None:
    """Continue a text."""
    _only_one({"--prompt": prompt, "--prompt-file": prompt_file, "--token-ids": token_ids})
    if token_ids is not None:
        given: dict[str, Any] = {"prompt_token_ids": parsed_ids("--token-ids", token_ids, "prompt")}
    else:
        given = {"prompt": _text(prompt, prompt_file)}
    given |= {**constraint.fields(), "adapter": model.one_adapter}
    _answer(model, sampling.request(**given), as_json=json, repeat=repeat)


@takes_options
def run(
    model: ModelOptions,
    sampling: SamplingOptions,
    constraint: ConstraintOptions,
    tools: ToolOptions,
    prompt: PromptText = None,
    prompt_file: PromptFile = None,
    system: Annotated[str | None, typer.Option("--system", help="What the model is told first.")] = None,
    json: Json = False,
    repeat: Repeat = 1,
) -> None:
    """Answer one message, through the checkpoint's chat template."""
    _only_one({"--prompt": prompt, "--prompt-file": prompt_file})
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": _text(prompt, prompt_file)})
    asked = {**constraint.fields(), **tools.fields(), "adapter": model.one_adapter}
    request = sampling.request(messages=tuple(messages), **asked)
    _answer(model, request, as_json=json, repeat=repeat)


def stream_answer(model: Model, request: Request, *, quiet: bool = False) -> dict[str, Any]:
    """The result, its text written as it comes; Ctrl-C cancels the row and still writes what it had said."""
    generation = model.submit(request)
    try:
        with _interrupt_cancels(generation):
            for event in generation:
                if event.text and not quiet:
                    write(event.text)
    finally:
        generation.cancel()
    return generation.result()


def raise_if_failed(result: dict[str, Any]) -> None:
    """RowError for a row that the engine ended; what it had said until then has been written."""
    if result["finish_reason"] == "error":
        raise RowError(result["error"])


@contextlib.contextmanager
def _interrupt_cancels(generation: Generation) -> Iterator[None]:
    """Ctrl-C ends the row, and its events say so: an exception could fall between writing a text and knowing it.
    A second Ctrl-C is an exception.
    """

    def cancel(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        generation.cancel()

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _answer(options: ModelOptions, request: Request, *, as_json: bool, repeat: int) -> None:
    if repeat > 1 and not as_json:
        raise RequestError("--repeat needs --json", "add --json, or leave --repeat out")
    validate(request, None)  # before the seconds that loading takes
    model = options.load()
    try:
        for _ in range(repeat):
            result = stream_answer(model, request, quiet=as_json)
            if as_json:
                write_json(result)
            elif sys.stdout is not None and sys.stdout.isatty():
                write("\n")
            if result["finish_reason"] == "cancelled":
                raise Interrupted
            raise_if_failed(result)
            if not as_json and sys.stderr.isatty():
                say(_summary(result))
    finally:
        model.close()


def _summary(result: dict[str, Any]) -> str:
    usage, timings = result["usage"], result["timings"]
    line = f"{usage['completion_tokens']} tokens after {usage['prompt_tokens']} ({usage['cached_tokens']} cached)"
    if timings["decode_ns"]:
        line += f", {len(timings['token_ns']) * 1e9 / timings['decode_ns']:.1f} tokens/s"
    return f"{line}, ended by {result['finish_cause']}"


def _only_one(ways: dict[str, object]) -> None:
    given = sum(value is not None for value in ways.values())
    if given != 1:
        raise RequestError(
            f"{given} prompts were given", f"give exactly one of {', '.join(ways)}", param="prompt"
        )


def _text(prompt: str | None, prompt_file: Path | None) -> str:
    return _read(prompt_file) if prompt is None and prompt_file is not None else prompt or ""


def _standard_input() -> bytes:
    if sys.stdin is None:  # started with its stdin closed
        raise RequestError("there is nothing to read: stdin is closed", "give a file", param="prompt")
    return sys.stdin.buffer.read()


def _read(path: Path) -> str:
    with reading(path, "prompt"):
        # Bytes, because a prompt's line ends are part of it.
        data = _standard_input() if str(path) == "-" else path.read_bytes()
        return data.decode()

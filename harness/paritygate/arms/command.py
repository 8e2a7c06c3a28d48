"""An engine by its command line: one process an answer, so that nothing is remembered between answers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

import msgspec
import numpy as np

from paritygate.arms import leashed
from paritygate.arms.answer import stream_of
from paritygate.arms.base import ArmError, Capabilities, StartsPrograms
from paritygate.arms.leash import NOT_STARTED
from paritygate.arms.own_settings import own_settings
from paritygate.arms.places import refuse_misspelt
from paritygate.arms.printed import end_of
from paritygate.arms.written_answer import refuse_beyond_sampling
from paritygate.case import Case
from paritygate.quantities import Seconds, Threads
from paritygate.stream import Stream

PROMPT_PLACES = ("{prompt}", "{prompt_file}")
PLACES = ("model", "prompt", "prompt_file", "max_tokens", "temperature", "seed")


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an arm of kind `command`.

    Without `command` it is `tokenline generate`, or `run` for a chat, with `backend`, `dtype` and `threads`. With it,
    any program: its words may hold {model}, {prompt}, {prompt_file}, {max_tokens}, {temperature} and {seed}, and its
    stdout is the answer's text, or one result object with `output = "result"`.
    """

    command: tuple[str, ...] = ()
    output: Literal["result", "text"] = "result"
    backend: str = "auto"
    dtype: str = "float32"
    threads: Threads = 1
    timeout_s: Seconds = 120.0

    def __post_init__(self) -> None:
        if self.command and not any(place in word for word in self.command for place in PROMPT_PLACES):
            raise ValueError(
                "command has no place for the prompt, so every answer would be to nothing: "
                "write {prompt} or {prompt_file} among its words"
            )
        refuse_misspelt(self.command, PLACES)


MOST_PRINTED = 64 << 20  # bytes of an answer
POLL_SECONDS = 0.25


def tokenline_program() -> str:
    """The `tokenline` script of the environment that this process runs in."""
    beside = Path(sys.executable).parent / "tokenline"
    return str(beside) if beside.exists() else "tokenline"


def _wait(
    process: subprocess.Popen[bytes], name: str, timeout_s: float, printed: tuple[IO[bytes], ...]
) -> int:
    """The exit status. Raises ArmError where the program hangs, or prints without end."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=max(0.0, min(POLL_SECONDS, deadline - time.monotonic())))
        sizes = [os.fstat(file.fileno()).st_size for file in printed]
        what = ""
        if max(sizes) > MOST_PRINTED:
            what = f"{name} printed more than {MOST_PRINTED >> 20} MiB: that is no answer"
        elif time.monotonic() >= deadline:
            what = f"{name} hung: it did not end within {timeout_s:g} s"
        if what:
            raise ArmError(what, "".join(end_of(file) for file in printed))


def run_to_end(
    words: list[str],
    timeout_s: float,
    descriptors: tuple[int, ...] = (),
    running: set[subprocess.Popen[bytes]] | None = None,
    cwd: Path | None = None,
) -> tuple[int, bytes, bytes]:
    """Exit status, stdout and stderr of a program; nothing that it started outlives it.

    Raises ArmError where it cannot be started, hangs, or prints without end.

    `descriptors` stay open in the program, under their numbers. It runs in `cwd`, and is in `running` as long as it
    runs, for another thread to end.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = leashed.start(words, stdout=out, stderr=err, descriptors=descriptors, cwd=cwd)
        running = set() if running is None else running
        running.add(process)
        try:
            status = _wait(process, words[0], timeout_s, (out, err))
        finally:
            leashed.end(process)
            running.discard(process)
        out.seek(0)
        err.seek(0)
        said, complained = out.read(), err.read()
    if status == NOT_STARTED and complained.startswith(f"{words[0]} cannot be started: ".encode()):
        raise ArmError(complained.decode(errors="replace").strip())
    return status, said, complained


def _constraint_words(case: Case) -> list[str]:
    """What tokenline's command line calls the constraint of a case."""
    words: list[str] = []
    for name, value in ({} if case.constraint is None else case.constraint.given()).items():
        option = f"--{name.replace('_', '-')}"
        if name == "choice":
            words += [word for each in value for word in (option, each)]
        elif name == "json_object":
            words.append(option)
        else:
            words += [option, value if isinstance(value, str) else json.dumps(value)]
    return words


class CommandArm(StartsPrograms):
    """Runs a program for every answer and reads what it prints."""

    Options: ClassVar[type[msgspec.Struct]] = CommandOptions
    in_process: ClassVar[bool] = False

    def __init__(self, name: str, options: CommandOptions, model: str) -> None:
        self.name = name
        self.options = options
        self.model = model
        self._running: set[subprocess.Popen[bytes]] = set()
        result = options.output == "result"
        self.capabilities = Capabilities(
            token_ids=result,
            logprobs=result,
            cached_tokens=result,
            prefill_pieces=result,
            resets=True,
            forgets=True,
            seeds=not options.command or any("{seed}" in word for word in options.command),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What its manifests will say of how it computes; a program that is not ours tells none."""
        options = self.options
        return {} if options.command else own_settings(options.backend, options.dtype, options.threads)

    def open(self) -> None:
        """Nothing to load: every answer is a process of its own."""

    def _tokenline(self, case: Case, prompt_file: Path, times: int) -> list[str]:
        program, options = tokenline_program(), self.options
        settings = ["-m", self.model, "--backend", options.backend, "--dtype", options.dtype]
        settings += ["--threads", str(options.threads), "--json", "--repeat", str(times)]
        settings += ["--max-tokens", str(case.max_tokens)]
        if case.logprobs is not None:
            settings += ["--logprobs", str(case.logprobs)]
        for name, value in case.sampler.given().items():
            if name == "dry_breakers":
                settings += [word for breaker in value or ("",) for word in ("--dry-breaker", breaker)]
            else:
                settings += [f"--{name.replace('_', '-')}", str(value)]
        if case.ignore_eos:
            settings += ["--ignore-eos"]
        settings += _constraint_words(case)
        for stop in case.stop:
            settings += ["--stop", stop]
        if case.prompt_token_ids is not None:
            return [program, "generate", *settings, "--token-ids", ",".join(map(str, case.prompt_token_ids))]
        if case.messages is None:
            return [program, "generate", *settings, "--prompt-file", str(prompt_file)]
        system = [m.content for m in case.messages if m.role == "system"]
        if [m.role for m in case.messages] != ["system"] * len(system) + ["user"] or len(system) > 1:
            raise ArmError(
                f"arm {self.name}, case {case.name}: a command takes one question, not a longer chat"
            )
        for content in system:
            settings += ["--system", content]
        return [program, "run", *settings, "--prompt-file", str(prompt_file)]

    def _foreign(self, case: Case, prompt_file: Path) -> list[str]:
        if case.prompt is None:
            raise ArmError(f"arm {self.name}, case {case.name}: this command takes a plain prompt")
        self._refuse_unsaid(case)
        refuse_beyond_sampling(self.name, case, "this command")
        values = {
            "model": self.model,
            "prompt": case.prompt,
            "prompt_file": str(prompt_file),
            "max_tokens": str(case.max_tokens),
            "temperature": str(case.sampler.temperature),
            "seed": str(case.sampler.seed or 0),
        }
        words = list(self.options.command)
        for name, value in values.items():
            words = [word.replace("{" + name + "}", value) for word in words]
        return words

    def _refuse_unsaid(self, case: Case) -> None:
        """A program is told what its words have a place for; what else a case sets is refused, not dropped."""
        given = case.sampler.given()
        if case.sampler.temperature == 0:
            del given["temperature"]  # greedy is what a program that is not told does
        unsaid = [
            name for name in given if not any("{" + name + "}" in word for word in self.options.command)
        ]
        unsaid += ["stop"] if case.stop else []
        if unsaid:
            raise ArmError(
                f"arm {self.name}, case {case.name}: this command has no place for `{unsaid[0]}`: leave the case out"
            )

    def _run(self, case: Case, times: int) -> list[bytes]:
        # A file without a name, so that nothing is left of it whoever is killed; the program opens its descriptor.
        with tempfile.TemporaryFile() as file:
            asked = case.prompt if case.messages is None else case.messages[-1].content
            file.write((asked or "").encode("utf-8"))
            file.seek(0)
            prompt_file = Path(f"/dev/fd/{file.fileno()}")
            own = not self.options.command
            words = self._tokenline(case, prompt_file, times) if own else self._foreign(case, prompt_file)
            status, out, err = run_to_end(
                words, self.options.timeout_s, (file.fileno(),), self._running, self.folder
            )
        if status != 0:
            raise ArmError(
                f"arm {self.name}, case {case.name}: it ended with exit status {status}",
                (err or out).decode(errors="replace"),
            )
        return [out] if self.options.output == "text" else [line for line in out.split(b"\n") if line.strip()]

    def _stream(self, case: Case, line: bytes) -> Stream:
        try:
            if self.options.output == "text":
                return Stream(case=case.name, arm=self.name, text=line.decode("utf-8"))
            answer: dict[str, Any] = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ArmError(
                f"arm {self.name}, case {case.name}: it printed what is not an answer ({error})",
                line.decode(errors="replace"),
            ) from error
        return stream_of(answer, case=case.name, arm=self.name)

    def generate(self, case: Case) -> Stream:
        return self.repeat(case, 1)[0]

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        if self.options.command:
            lines = [line for _ in range(times) for line in self._run(case, 1)]
        else:
            lines = self._run(case, times)
        if len(lines) != times:
            raise ArmError(
                f"arm {self.name}, case {case.name}: it printed {len(lines)} answers, {times} were asked for",
                b"\n".join(lines).decode(errors="replace"),
            )
        return tuple(self._stream(case, line) for line in lines)

    def reset(self) -> None:
        """Nothing is remembered from one process to the next."""

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        raise ArmError(f"arm {self.name}: a command line gives no logits")

    def close(self) -> None:
        """Nothing outlives an answer; one that is being waited for in another thread is ended."""
        for process in tuple(self._running):
            leashed.end(process)

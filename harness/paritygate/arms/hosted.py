"""An in-process arm in a process of its own, so that it can hang, print, crash and be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import traceback
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import msgspec
import numpy as np

from paritygate.arms.base import Arm, ArmError, Capabilities
from paritygate.arms.printed import end_of
from paritygate.arms.registry import arm_class, make_arm
from paritygate.case import Case
from paritygate.stream import Stream

CLOSING_SECONDS = 2.0
ENDING_SECONDS = 0.5


class _Output:
    """A file without a name that the hosted process writes to: whoever is killed leaves nothing behind."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled as the process is started, which is when a descriptor can be handed on.
        return _same, (reduction.DupFd(self._file.fileno()),)

    def end(self) -> str:
        return end_of(self._file)

    def close(self) -> None:
        self._file.close()


def _same(descriptor: Any) -> Any:
    return descriptor


def _serve(link: Connection, printed: Any, name: str, kind: str, options: dict[str, Any], model: str) -> None:
    """Run in the child: answer (method, arguments) with (True, value) or (False, ArmError) until told to close."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it closes its arms
    output = printed.detach()
    os.dup2(output, 1)
    os.dup2(output, 2)
    arm = make_arm(name, kind, options, model)
    while True:
        try:
            method, arguments = link.recv()
        except EOFError:  # the parent is gone
            return
        try:
            answer = (True, getattr(arm, method)(*arguments))
        except ArmError as error:
            answer = (False, error)
        except Exception:  # the boundary that owns the process: the parent gets what happened
            answer = (False, ArmError(f"arm {name} failed in {method}", traceback.format_exc()))
        link.send(answer)
        if method == "close":
            return


def driven(name: str, kind: str, options: dict[str, Any], model: str) -> Arm:
    """An arm as the gates drive it: hosted where its engine is loaded into a process. Raises ArmError."""
    if arm_class(kind).in_process:
        return HostedArm(name, kind, options, model)
    return make_arm(name, kind, options, model)


class HostedArm:
    """Stands for an arm in another process; it is started by `open` and killed when it misses its timeout."""

    in_process: ClassVar[bool] = False

    def __init__(self, name: str, kind: str, options: dict[str, Any], model: str) -> None:
        cls = arm_class(kind)
        try:
            self.timeout_s: float = msgspec.convert(options, cls.Options).timeout_s
        except msgspec.ValidationError as error:
            raise ArmError(f"arm {name}: {error}") from error
        self.name = name
        self.capabilities: Capabilities = cls.capabilities
        self._spec = (name, kind, options, model)
        self._process: Any = None
        self._link: Connection | None = None
        self._printed: _Output | None = None

    def _ask(self, method: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        link = self._link
        if link is None:
            raise ArmError(f"arm {self.name} is not running: it was stopped after an earlier failure")
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            link.send((method, arguments))
            if not link.poll(limit):
                raise ArmError(
                    f"arm {self.name} hung: no answer to {method} within {limit:g} s", self._said()
                )
            ok, value = link.recv()
        except (EOFError, OSError) as error:
            process, said = self._process, self._said()
            self._kill()
            status = process.exitcode if process is not None else None
            raise ArmError(f"arm {self.name} ended in {method} with exit status {status}", said) from error
        except ArmError:
            self._kill()
            raise
        if not ok:
            raise value
        return value

    def _said(self) -> str:
        return self._printed.end() if self._printed is not None else ""

    def _kill(self) -> None:
        process, link = self._process, self._link
        self._process = self._link = None
        if process is not None:
            process.join(ENDING_SECONDS)  # one that is ending by itself has an exit status to tell
            process.kill()
            process.join()
        if link is not None:
            link.close()
        if self._printed is not None:
            self._printed.close()
            self._printed = None

    def open(self) -> None:
        if self._link is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._link, theirs = context.Pipe()
        self._printed = _Output()
        self._process = context.Process(target=_serve, args=(theirs, self._printed, *self._spec), daemon=True)
        self._process.start()
        theirs.close()
        self._ask("open")

    def generate(self, case: Case) -> Stream:
        return self._ask("generate", case)

    def repeat(self, case: Case, times: int) -> tuple[Stream, ...]:
        return self._ask("repeat", case, times)

    def together(self, cases: tuple[Case, ...]) -> tuple[Stream, ...]:
        return self._ask("together", cases)

    def abort(self, case: Case) -> None:
        self._ask("abort", case)

    def running(self) -> int:
        return self._ask("running")

    def cache_bytes(self) -> int:
        return self._ask("cache_bytes")

    def reset(self) -> None:
        self._ask("reset")

    def logits(self, token_ids: tuple[int, ...], start: int) -> np.ndarray:
        return self._ask("logits", token_ids, start)

    def logits_in_pieces(self, token_ids: tuple[int, ...], start: int, size: int) -> tuple[np.ndarray, int]:
        return self._ask("logits_in_pieces", token_ids, start, size)

    def taps(self, token_ids: tuple[int, ...]) -> dict[str, np.ndarray]:
        return self._ask("taps", token_ids)

    def close(self) -> None:
        if self._link is not None:
            with contextlib.suppress(ArmError):
                self._ask("close", timeout_s=CLOSING_SECONDS)
        self._kill()

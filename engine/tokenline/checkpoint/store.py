"""Where fetched checkpoints are kept, and how two processes and a power cut leave that place whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenline.errors import CheckpointError

PARTIAL = ".partial"


@dataclass(frozen=True)
class Store:
    """`$TOKENLINE_HOME/models`, one directory per alias.

    A checkpoint appears there by one rename, after it was checked, so what is there is whole. Fetching
    happens under a lock that the system drops with the process, and first clears what a killed one left.
    """

    root: Path

    @classmethod
    def default(cls) -> Store:
        home = os.environ.get("TOKENLINE_HOME") or "~/.cache/tokenline"
        return cls(Path(home).expanduser() / "models")

    def names(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if path.is_dir() and path.name[0] != ".")

    def path(self, name: str) -> Path:
        return self.root / name

    def remove(self, name: str) -> None:
        """Forget a fetched checkpoint; raises CheckpointError when there is none."""
        if name not in self.names():
            kept = ", ".join(self.names()) or "nothing"
            raise CheckpointError(f"{name!r} has not been fetched", f"fetched so far: {kept}")
        with self.fetching(name) as workplace:
            # Out of sight by a rename first: a reader sees all of it or none.
            os.replace(self.path(name), workplace / name)

    @contextlib.contextmanager
    def fetching(self, name: str) -> Iterator[Path]:
        """A scratch directory on the same disk, under the lock of `name`; gone afterwards."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / f".{name}.lock").open("w")
        except OSError as error:
            raise _unwritable(self.root, error) from None
        with lock:
            _acquire(lock.fileno(), name)
            for leftover in self.root.glob(f".{name}{PARTIAL}*"):
                shutil.rmtree(leftover, ignore_errors=True)
            workplace = Path(tempfile.mkdtemp(prefix=f".{name}{PARTIAL}", dir=self.root))
            try:
                yield workplace
            except OSError as error:
                raise _unwritable(self.root, error) from None
            finally:
                shutil.rmtree(workplace, ignore_errors=True)


def _acquire(descriptor: int, name: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"tokenline: another process is fetching {name}; waiting for it", file=sys.stderr, flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _unwritable(root: Path, error: OSError) -> CheckpointError:
    reason = error.strerror or str(error)
    return CheckpointError(f"cannot write to {root} ({reason})", "make room there, or set TOKENLINE_HOME")

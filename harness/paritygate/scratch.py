"""Temporary folders that nobody has to clean up after a process that was killed with -9."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# A folder is locked as long as its owner lives: the kernel lets go of the lock, whatever ends the process.
HELD = "paritygate-held-"
# Made, and not locked yet: nobody's once this many seconds are over.
MAKING, MAKING_SECONDS = "paritygate-making-", 3600.0


@contextlib.contextmanager
def scratch(what: str, *, under: Path | None = None) -> Iterator[Path]:
    """A folder for `what`, in the system's folder for temporary files or `under`; gone afterwards.

    What processes that are gone left there is removed first; what belongs to a living one is not touched.
    """
    place = Path(under or tempfile.gettempdir()).resolve()
    remove_orphans(place)
    folder = Path(tempfile.mkdtemp(prefix=MAKING, dir=place))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # A file system without locks: the folder keeps a name that nobody removes before its time is over.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = folder.rename(place / f"{HELD}{what}-{folder.name.removeprefix(MAKING)}")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_orphans(place: Path) -> None:
    """Remove the folders of `scratch` whose owner is gone."""
    for folder in place.glob("paritygate-*-*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another process removed it, or it is another user's
            continue
        try:
            if _is_orphan(folder, descriptor):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _is_orphan(folder: Path, descriptor: int) -> bool:
    found = os.fstat(descriptor)
    if found.st_uid != os.getuid():
        return False
    if folder.name.startswith(MAKING):
        return time.time() - found.st_mtime > MAKING_SECONDS
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return folder.name.startswith(HELD)

"""Reads the files of faults that a policy names; what is wrong with one is said by file, line and key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from paritygate.faults.catalogue import Fault
from paritygate.policy.reader import PolicyError, Reader


def load_catalogue(root: Path, files: Iterable[str]) -> tuple[Fault, ...]:
    """The faults of all files, in their order. Raises PolicyError naming file, line and key."""
    faults: list[Fault] = []
    for file in files:
        path = root / file
        try:
            text = path.read_bytes().decode("utf-8")
            document = tomllib.loads(text)
        except OSError as error:
            raise PolicyError(
                f"{file}: {error.strerror}: [faults] `catalogue` names it: write it, or take it out there"
            ) from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise PolicyError(f"{file}: {error}") from error
        reader = Reader(path, text, document, shown=file)
        reader.only_tables("fault")
        found: tuple[Fault, ...] = reader.take(("fault",), document.get("fault", []), tuple[Fault, ...])
        known = {fault.id for fault in faults}
        for index, fault in enumerate(found):
            if fault.id in known:
                raise reader.error(("fault", index), f"two faults are called {fault.id!r}")
            known.add(fault.id)
        faults += found
    if not faults:
        raise PolicyError("[faults] catalogue: there is no [[fault]] in it: nothing could be planted")
    return tuple(faults)

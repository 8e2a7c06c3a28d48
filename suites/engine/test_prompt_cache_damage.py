"""A prompt cache's file that is damaged, foreign, fought over or not writable: said in a line, and never used."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from saved_caches import NAMESPACE, PROMPT, answer, file_of, filled, opened, run, saver

from tokenline.errors import CacheFileError
from tokenline.ops import open_ops
from tokenline.prompt_cache import PromptCache

FAMILIES = Path(__file__).parents[2] / "golden" / "models"
HEAD = 60  # magic 8, version 4, two lengths of 8, digest 32


@pytest.fixture(scope="module")
def sound(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Any]]:
    """A file of two prompts, and the answer to the first."""
    path = tmp_path_factory.mktemp("sound") / "cache"
    with opened(tiny_checkpoint, path) as model:
        cold = answer(model)
        answer(model, PROMPT[7:])
    return path.read_bytes(), cold


def flipped(at: Callable[[int, int], int]) -> Callable[[bytes], bytes]:
    """One bit of the byte at a place, told the file's size and where its index begins."""

    def flip(data: bytes) -> bytes:
        index = HEAD + struct.unpack_from("<Q", data, 12)[0]
        broken = bytearray(data)
        broken[at(len(data), index)] ^= 4
        return bytes(broken)

    return flip


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "it is no prompt cache"),
    "a few bytes": (lambda data: data[:5], "it is no prompt cache"),
    "half a header": (lambda data: data[:30], "it is no prompt cache"),
    "the header alone": (lambda data: data[:HEAD], f"it has {HEAD} bytes, and its header says "),
    "half": (lambda data: data[: len(data) // 2], "bytes, and its header says "),
    "without the last byte": (lambda data: data[:-1], "bytes, and its header says "),
    "with a byte more": (lambda data: data + b"\0", "bytes, and its header says "),
    "magic": (flipped(lambda size, index: 3), "it is no prompt cache"),
    "version": (flipped(lambda size, index: 8), "it is of version 5, this engine reads 1"),
    "bytes of data": (flipped(lambda size, index: 13), "bytes, and its header says "),
    "bytes of the index": (flipped(lambda size, index: 20), "bytes, and its header says "),
    "digest": (flipped(lambda size, index: 28), "its bytes are not those that were written"),
    "end of the digest": (flipped(lambda size, index: HEAD - 1), "its bytes are not those"),
    "first byte of data": (flipped(lambda size, index: HEAD), "its bytes are not those"),
    "a byte of data": (flipped(lambda size, index: (HEAD + index) // 2), "its bytes are not those"),
    "last byte of data": (flipped(lambda size, index: index - 1), "its bytes are not those"),
    "first byte of the index": (flipped(lambda size, index: index), "its bytes are not those"),
    "a byte of the index": (flipped(lambda size, index: (index + size) // 2), "its bytes are not those"),
    "last byte": (flipped(lambda size, index: size - 1), "its bytes are not those"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_said_in_one_line_and_the_model_runs_cold(
    tiny_checkpoint: Path, sound: tuple[bytes, dict[str, Any]], tmp_path: Path, said: Any, damage: str
) -> None:
    (whole, cold), (change, reason) = sound, DAMAGE[damage]
    path = tmp_path / "cache"
    path.write_bytes(change(whole))
    with opened(tiny_checkpoint, path) as model:
        [line] = said()
        assert line.startswith(f"the prompt cache in {path} is not used: ")
        assert reason in line
        assert len(line.splitlines()) == 1
        assert line.endswith(": remove it, or name another file")
        ran = answer(model)
    assert ran["usage"]["cached_tokens"] == 0
    assert (ran["token_ids"], ran["logprobs"]) == (cold["token_ids"], cold["logprobs"])


def test_a_file_of_sound_bytes_whose_index_lies_is_not_used(tmp_path: Path, said: Any) -> None:
    """Its digest is right: somebody wrote it so."""
    import hashlib

    ops, path = open_ops("torch", "float32", 1), tmp_path / "cache"
    file_of(path, ops).save(filled(ops, 0, 2))
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data, 12)[0]
    body, index = data[HEAD : HEAD + size], json.loads(data[HEAD + size :])
    for lie in (
        {"pieces": 3},
        {"pieces": [{**index["pieces"][0], "layers": []}]},
        {"pieces": [{**index["pieces"][0], "key": "no digits"}]},
        {"pieces": [{**index["pieces"][0], "layers": [{"counts": [1, 0, 0], "arrays": []}]}]},
        {"pieces": [{**index["pieces"][0], "layers": [{"counts": [1], "arrays": [["float32", [2]]] * 2}]}]},
        {
            "pieces": [
                {**index["pieces"][0], "layers": [{"counts": [1, 0, 0], "arrays": [["float9", [2]]] * 2}]}
            ]
        },
    ):
        told = json.dumps(lie).encode()
        digest = hashlib.blake2b(body + told + struct.pack("<IQQ", 1, size, len(told)), digest_size=32)
        path.write_bytes(
            struct.pack("<8sIQQ32s", b"TLPCACHE", 1, size, len(told), digest.digest()) + body + told
        )
        cache = PromptCache(1 << 30)
        file_of(path, ops).recall(cache, {NAMESPACE})
        [line] = said()
        assert "its index and its bytes do not fit" in line
        assert len(cache) == 0


@pytest.mark.parametrize(
    "other",
    [
        {"backend": "mlx"},
        {"dtype": "bfloat16"},
        {"threads": 2},
        {"context_length": 1024},
        {"weight_bits": 8, "weight_group": 32},
        {"model": FAMILIES / "llama" / "checkpoint"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_file_of_another_model_or_of_another_way_to_run_it_is_not_used(
    tiny_checkpoint: Path,
    sound: tuple[bytes, dict[str, Any]],
    tmp_path: Path,
    said: Any,
    other: dict[str, Any],
) -> None:
    path = tmp_path / "cache"
    path.write_bytes(sound[0])
    settings = dict(other)
    with opened(settings.pop("model", tiny_checkpoint), path, **settings) as model:
        [line] = said()
        assert "it is of another model, or of another way to run it" in line
        assert model.cache_stats()["entries"] == 0
        assert answer(model)["usage"]["cached_tokens"] == 0
    with opened(tiny_checkpoint, path) as model:
        assert answer(model)["usage"]["cached_tokens"] == 0  # what is there now is the other's


@pytest.mark.parametrize("place", ["a directory", "a fifo", "below a file"])
def test_what_is_no_file_is_said_and_nothing_else_happens(
    tiny_checkpoint: Path, tmp_path: Path, place: str
) -> None:
    path = tmp_path / "place"
    if place == "a directory":
        path.mkdir()
    elif place == "a fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"")
        path = path / "cache"
    ran, (unused, unsaved) = run(tiny_checkpoint, "torch", path)
    assert len(ran["token_ids"]) == 10
    assert unused.startswith(f"the prompt cache in {path} is not used: ")
    assert unsaved.startswith("the prompt cache is not saved")
    assert str(path) in unsaved


def test_a_place_that_cannot_be_written_costs_a_line_and_no_answer(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "cache"
    ran, lines = run(tiny_checkpoint, "torch", path)
    assert len(ran["token_ids"]) == 10
    mend = "check that there is room, and the right to write"
    assert lines == [f"the prompt cache is not saved to {path} (No such file or directory): {mend}"]
    with opened(tiny_checkpoint, path) as model:
        answer(model)
        with pytest.raises(CacheFileError, match="No such file or directory"):
            model.save_cache()
        path.parent.mkdir()
        model.save_cache()
        assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_a_file_that_is_something_else_is_left_as_it_is(
    tiny_checkpoint: Path, tmp_path: Path, said: Any
) -> None:
    path = tmp_path / "precious.gguf"
    path.write_bytes(b"GGUF and more")
    with opened(tiny_checkpoint, path) as model:
        answer(model)
    unused, unsaved = said()
    assert "it is no prompt cache" in unused
    assert "holds something else" in unsaved
    assert path.read_bytes() == b"GGUF and more"
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_that_is_killed_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    ops, path = open_ops("torch", "float32", 1), tmp_path / "cache"
    file_of(path, ops).save(filled(ops, 0, 2))
    before, partial = path.read_bytes(), tmp_path / ".cache.partial"
    process = saver(path, first=5, pieces=12, copies=128, times=1)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 60
        while not partial.exists() or partial.stat().st_size < 1 << 20:
            assert time.monotonic() < deadline
            assert process.poll() is None, "the save was over before it could be killed"
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert partial.exists()
    assert path.read_bytes() == before
    file_of(path, ops).save(filled(ops, 0, 3))
    assert [each.name for each in tmp_path.iterdir()] == ["cache"]


def test_two_processes_that_save_at_once_leave_one_whole_file(tmp_path: Path, said: Any) -> None:
    ops, path = open_ops("torch", "float32", 1), tmp_path / "cache"
    contents = {}
    for first, pieces in ((0, 3), (5000, 5)):
        file_of(path, ops).save(filled(ops, first, pieces))
        contents[path.read_bytes()] = pieces
    processes = [saver(path, first, pieces, copies=1, times=60) for first, pieces in ((0, 3), (5000, 5))]
    seen = 0
    while any(process.poll() is None for process in processes):
        found = PromptCache(1 << 30)
        file_of(path, ops).recall(found, {NAMESPACE})
        assert len(found) in contents.values()
        seen += 1
    assert [process.wait() for process in processes] == [0, 0]
    assert said() == []
    assert seen > 5
    assert path.read_bytes() in contents
    assert [each.name for each in tmp_path.iterdir()] == ["cache"]

"""The prompt cache between two processes: one file, whole or as it was before."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import logging
import os
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import msgspec

from tokenline.cache import CacheState, LayerCache
from tokenline.errors import CacheFileError
from tokenline.ops import Ops
from tokenline.ops.stored import StoredArray, stored_bytes
from tokenline.prompt_cache import Entry, PromptCache

_log = logging.getLogger("tokenline")

MAGIC, VERSION = b"TLPCACHE", 1
# Magic, version, bytes of data, bytes of the index behind them, digest of all three numbers and all these bytes.
_HEAD = struct.Struct("<8sIQQ32s")
_COUNTS = struct.Struct("<IQQ")
_BLOCK = 1 << 24


class _Layer(msgspec.Struct):
    """Its arrays' bytes follow those of the layer before."""

    counts: tuple[int, ...]
    arrays: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def nbytes(self) -> int:
        return sum(stored_bytes(dtype, shape) for dtype, shape in self.arrays)


class _Piece(msgspec.Struct):
    key: str
    namespace: str
    layers: tuple[_Layer, ...]


class _Index(msgspec.Struct):
    """The least recently used first, as in the cache."""

    pieces: tuple[_Piece, ...]


class PromptCacheFile:
    """`new_caches` makes the network's layer caches, which the stored states are put into."""

    def __init__(self, path: Path, ops: Ops, new_caches: Callable[[], Sequence[LayerCache]]) -> None:
        self.path = path.expanduser()
        self._ops, self._new_caches = ops, new_caches

    def recall(self, cache: PromptCache, namespaces: Collection[str]) -> None:
        """Have the cache hold what the file has of these namespaces, as much of the youngest as its limit lets in. Why
        a file cannot be used is said, and the cache stays empty."""
        try:
            cache.take_over(self._read(namespaces, cache.limit_bytes))
        except CacheFileError as error:
            _log.warning("%s", error)

    def keep(self, cache: PromptCache) -> None:
        """Save what has changed since `recall`; that it cannot be is said, and no more."""
        if cache.changed:
            try:
                self.save(cache)
            except CacheFileError as error:
                _log.warning("%s", error)

    def _read(self, namespaces: Collection[str], limit_bytes: int) -> list[tuple[bytes, Entry]]:
        """The least recently used first."""
        try:
            if self.path.exists() and not self.path.is_file():
                raise self._unusable("it is no file")
            with self.path.open("rb") as file:
                data_bytes, index_bytes = self._checked(file)
                file.seek(_HEAD.size + data_bytes)
                index = msgspec.json.decode(file.read(index_bytes), type=_Index)
                return self._entries(file, index, namespaces, limit_bytes)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        except (ValueError, msgspec.DecodeError) as error:
            raise self._unusable(f"its index and its bytes do not fit ({error})") from error

    def _checked(self, file: BinaryIO) -> tuple[int, int]:
        """Bytes of data and of the index, after all of them were compared with the digest."""
        head = file.read(_HEAD.size)
        if head[: len(MAGIC)] != MAGIC or len(head) < _HEAD.size:
            raise self._unusable("it is no prompt cache")
        _, version, data_bytes, index_bytes, digest = _HEAD.unpack(head)
        if version != VERSION:
            raise self._unusable(f"it is of version {version}, this engine reads {VERSION}")
        size, told = os.fstat(file.fileno()).st_size, _HEAD.size + data_bytes + index_bytes
        if size != told:
            raise self._unusable(f"it has {size} bytes, and its header says {told}")
        found = hashlib.blake2b(digest_size=32)
        while block := file.read(_BLOCK):
            found.update(block)
        found.update(_COUNTS.pack(version, data_bytes, index_bytes))
        if found.digest() != digest:
            raise self._unusable("its bytes are not those that were written")
        return data_bytes, index_bytes

    def _entries(
        self, file: BufferedReader, index: _Index, namespaces: Collection[str], limit_bytes: int
    ) -> list[tuple[bytes, Entry]]:
        sizes = [sum(layer.nbytes for layer in piece.layers) for piece in index.pieces]
        starts = list(itertools.accumulate(sizes, initial=_HEAD.size))
        ours = [i for i, piece in enumerate(index.pieces) if piece.namespace in namespaces]
        if index.pieces and not ours:
            raise self._unusable("it is of another model, or of another way to run it")
        # From the youngest on: a piece is younger than those that follow it, so none is kept without those before it.
        totals = itertools.accumulate(sizes[i] for i in reversed(ours))
        kept = [i for i, total in zip(reversed(ours), totals, strict=True) if total <= limit_bytes]
        entries = []
        for i in reversed(kept):
            piece = index.pieces[i]
            file.seek(starts[i])
            segments = [
                fresh.restored(CacheState(layer.counts, self._arrays(file, layer)))
                for fresh, layer in zip(self._new_caches(), piece.layers, strict=True)
            ]
            entries.append((bytes.fromhex(piece.key), Entry(piece.namespace, segments)))
        return entries

    def _arrays(self, file: BufferedReader, layer: _Layer) -> tuple[object, ...]:
        arrays = []
        for dtype, shape in layer.arrays:
            data = bytearray(stored_bytes(dtype, shape))
            file.readinto(data)
            arrays.append(self._ops.unstored(StoredArray.of_bytes(dtype, shape, data)))
        return tuple(arrays)

    def save(self, cache: PromptCache) -> None:
        """Replace the file in one step: who reads it meanwhile, or after this was killed, has the old one.

        CacheFileError where the place cannot be written, or holds something else than a prompt cache.
        """
        path = self.path.resolve()
        try:
            with _alone_in(path.parent) as directory:
                if path.exists() and not _may_be_replaced(path):
                    raise CacheFileError(
                        f"the prompt cache is not saved: {self.path} holds something else",
                        "remove it, or name another file",
                    )
                # One name for all writers: what a killed one left is written over by the next.
                partial = path.with_name(f".{path.name}.partial")
                try:
                    # What was asked is nobody else's to read, and neither is what was computed from it.
                    with open(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                        self._write(file, cache.entries())
                    os.replace(partial, path)
                    os.fsync(directory)
                finally:
                    partial.unlink(missing_ok=True)
        except OSError as error:
            raise CacheFileError(
                f"the prompt cache is not saved to {self.path} ({error.strerror or error})",
                "check that there is room, and the right to write",
            ) from error

    def _write(self, file: BinaryIO, entries: Sequence[tuple[bytes, Entry]]) -> None:
        file.write(bytes(_HEAD.size))
        digest, data_bytes, pieces = hashlib.blake2b(digest_size=32), 0, []
        for key, entry in entries:
            layers = []
            for segment in entry.segments:
                state = segment.state()
                stored = [self._ops.stored(array) for array in state.arrays]
                for each in stored:
                    data = each.values.tobytes()
                    digest.update(data)
                    data_bytes += file.write(data)
                layers.append(_Layer(state.counts, tuple((each.dtype, each.values.shape) for each in stored)))
            pieces.append(_Piece(key.hex(), entry.namespace, tuple(layers)))
        index = msgspec.json.encode(_Index(tuple(pieces)))
        file.write(index)
        digest.update(index)
        counts = (VERSION, data_bytes, len(index))
        digest.update(_COUNTS.pack(*counts))
        file.seek(0)
        file.write(_HEAD.pack(MAGIC, *counts, digest.digest()))
        file.flush()
        os.fsync(file.fileno())

    def _unusable(self, why: str) -> CacheFileError:
        return CacheFileError(
            f"the prompt cache in {self.path} is not used: {why}", "remove it, or name another file"
        )


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[int]:
    """The directory's descriptor, while no other process of ours saves there; the system drops the lock with the
    process."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _may_be_replaced(path: Path) -> bool:
    """Whether what lies there is a prompt cache, or the beginning of one."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MAGIC.startswith(file.read(len(MAGIC)))

"""Prompt caches of known content, and processes that save one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tokenline
from tokenline.cache import DenseCache
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.ops import Ops, open_ops
from tokenline.prompt_cache import PromptCache, Trail
from tokenline.prompt_cache_file import PromptCacheFile

NAMESPACE = "here"
PROMPT = "The river rises when the snow melts, and falls when the mills drink. " * 9
SIZE = 64


def filled(ops: Ops, first: int, pieces: int, copies: int = 1) -> PromptCache:
    """One layer; the state of every token is the token: a prompt that begins with `first`, of so many pieces of 256."""
    tokens = list(range(first, first + 256 * pieces))
    plan = PrefillPlan.of(len(tokens))
    trail, cache = Trail.of(NAMESPACE, tokens, plan), PromptCache(1 << 34)
    layer = DenseCache(ops, copies, SIZE)
    for piece in trail.pieces:
        values = np.asarray(tokens[piece.start : piece.stop], np.float32)[None, None, :, None]
        state = ops.array(values * np.ones((1, copies, 1, SIZE), np.float32))
        layer.update(state, state)
        cache.store(trail, piece, [layer], 0)
    return cache


def file_of(path: Path, ops: Ops, copies: int = 1) -> PromptCacheFile:
    return PromptCacheFile(path, ops, lambda: [DenseCache(ops, copies, SIZE)])


def run(checkpoint: Path, backend: str, path: Path) -> tuple[dict[str, Any], list[str]]:
    """One process from its beginning to its end, which is a good one: its result, and its lines on stderr."""
    command = ["generate", "-m", str(checkpoint), "--backend", backend, "--threads", "1", "-p", PROMPT]
    command += ["-n", "10", "--ignore-eos", "--logprobs", "3", "--json", "--prompt-cache-file", str(path)]
    program = [sys.executable, "-c", "from tokenline.cli import main; main()", *command]
    ended = subprocess.run(program, capture_output=True, timeout=120, check=True)
    return json.loads(ended.stdout), ended.stderr.decode().splitlines()


def opened(checkpoint: Path, path: Path, **options: Any) -> tokenline.client.Model:
    settings = {"backend": "torch", "dtype": "float32", "threads": 1, "prompt_cache_file": path} | options
    return tokenline.load(str(checkpoint), **settings)


def answer(model: Any, prompt: str = PROMPT, **asked: Any) -> dict[str, Any]:
    return model.generate(prompt, max_tokens=6, ignore_eos=True, logprobs=2, **asked)


def saver(path: Path, first: int, pieces: int, copies: int, times: int) -> subprocess.Popen[bytes]:
    """Says "ready", then saves so often."""
    arguments = [str(path), *map(str, (first, pieces, copies, times))]
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE)


def _main() -> None:
    path, first, pieces, copies, times = Path(sys.argv[1]), *map(int, sys.argv[2:])
    ops = open_ops("torch", "float32", 1)
    cache, file = filled(ops, first, pieces, copies), file_of(path, ops, copies)
    print("ready", flush=True)
    for _ in range(times):
        file.save(cache)


if __name__ == "__main__":
    _main()

"""The prompt cache on disk: what is found again is what was computed, whatever happens to the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model
from saved_caches import NAMESPACE, answer, file_of, filled, opened, run

from tokenline.cache import (
    ChunkedCache,
    DenseCache,
    LatentCache,
    LayerCache,
    PairCache,
    RecurrentCache,
    WindowCache,
)
from tokenline.decode.prefill_plan import PrefillPlan
from tokenline.errors import BackendError, CacheFileError
from tokenline.ops import Ops, Precision, open_ops
from tokenline.prompt_cache import PromptCache, Trail
from tokenline.prompt_cache_file import PromptCacheFile

FAMILIES = Path(__file__).parents[2] / "golden" / "models"
HEAD = 60  # magic 8, version 4, two lengths of 8, digest 32


def updated(ops: Ops, cache: Any, tokens: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The next tokens' drawn state goes in; what attention then sees comes out, and a recurrent state."""

    def drawn(*shape: int) -> Any:
        return ops.array(rng.standard_normal(shape).astype(np.float32))

    if isinstance(cache, PairCache):
        return updated(ops, cache.attention, tokens, rng) + updated(ops, cache.recurrent, tokens, rng)
    if isinstance(cache, RecurrentCache):
        # The state stays float32 whatever the dtype is, as the families keep it.
        cache.update(tokens, drawn(1, 3, 5), ops.float32(rng.standard_normal((1, 2, 4, 4))))
        return ops.read(list(cache.arrays or ()))
    if isinstance(cache, LatentCache):
        return ops.read(list(cache.update(drawn(1, 1, tokens, 96))))
    return ops.read(list(cache.update(drawn(1, 2, tokens, 64), drawn(1, 2, tokens, 64))))


KINDS: dict[str, Callable[[Ops], LayerCache]] = {
    "dense": lambda ops: DenseCache(ops, 2, 64),
    "window": lambda ops: WindowCache(ops, 300, 2, 64),
    "chunked": lambda ops: ChunkedCache(ops, 300, 2, 64),
    "latent": lambda ops: LatentCache(ops, 96),
    "recurrent": RecurrentCache,
    "pair": lambda ops: PairCache(WindowCache(ops, 40, 2, 64), RecurrentCache(ops)),
}


@pytest.mark.parametrize("bits", [None, 8, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer_comes_back_bit_for_bit(
    backend: str, kind: str, dtype: str, bits: int | None, tmp_path: Path
) -> None:
    ops, make = open_ops(backend, dtype, 1, Precision(kv_bits=bits)), KINDS[kind]
    tokens, rng = list(range(700)), np.random.default_rng(2)
    trail = Trail.of(NAMESPACE, tokens, PrefillPlan.of(len(tokens)))
    layers, cache = [make(ops), make(ops)], PromptCache(1 << 30)
    for piece in trail.pieces:
        for layer in layers:
            updated(ops, layer, piece.stop - piece.start, rng)
        cache.store(trail, piece, layers, 0)
    file = PromptCacheFile(tmp_path / "cache", ops, lambda: [make(ops), make(ops)])
    file.save(cache)
    found = PromptCache(1 << 30)
    file.recall(found, {NAMESPACE})
    assert (len(found), found.nbytes) == (len(trail.pieces), cache.nbytes)
    (count, before), (again, after) = cache.adopt(trail), found.adopt(trail)
    assert count == again == len(tokens) - 1
    for ours, theirs in zip(after, before, strict=True):
        assert (ours.length, ours.nbytes) == (theirs.length, theirs.nbytes)
        for step in (1, 30):
            said = [updated(ops, each, step, np.random.default_rng(step)) for each in (ours, theirs)]
            for left, right in zip(*said, strict=True):
                assert np.array_equal(left, right)


@pytest.mark.parametrize("family", ["llama", "gemma2", "falcon_h1", "qwen3_5", "deepseek_v3"])
def test_a_hit_after_a_restart_is_a_cold_run_bit_for_bit(family: str, backend: str, tmp_path: Path) -> None:
    checkpoint, path = FAMILIES / family / "checkpoint", tmp_path / "cache"
    (cold, nothing), (hit, _) = (run(checkpoint, backend, path) for _ in range(2))
    assert nothing == []
    assert cold["usage"]["cached_tokens"] == 0
    assert hit["usage"]["cached_tokens"] == len(cold["prompt_token_ids"]) - 1 > 256
    assert hit["counters"]["prefill_forwards"] == 1 < cold["counters"]["prefill_forwards"]
    assert (hit["token_ids"], hit["logprobs"]) == (cold["token_ids"], cold["logprobs"])


def test_states_of_an_adapter_are_found_by_that_adapter_alone(
    tiny_checkpoint: Path, tiny_oracle: Any, tmp_path: Path, said: Any
) -> None:
    path, adapters = tmp_path / "cache", {}
    for name, rank in (("one", 2), ("two", 3)):
        made = get_peft_model(
            tiny_oracle, LoraConfig(r=rank, target_modules=["q_proj"], init_lora_weights=False)
        )
        made.save_pretrained(tmp_path / name)
        made.unload()
        adapters[name] = tmp_path / name
    with opened(tiny_checkpoint, path, adapters=adapters) as model:
        cold = answer(model, adapter="one")
    with opened(
        tiny_checkpoint, path, adapters={"renamed": adapters["one"], "two": adapters["two"]}
    ) as model:
        assert answer(model)["usage"]["cached_tokens"] == 0
        assert answer(model, adapter="two")["usage"]["cached_tokens"] == 0
        hit = answer(model, adapter="renamed")
        assert hit["usage"]["cached_tokens"] == len(hit["prompt_token_ids"]) - 1
        assert (hit["token_ids"], hit["logprobs"]) == (cold["token_ids"], cold["logprobs"])
    assert said() == []
    with opened(tiny_checkpoint, path, adapters={"two": adapters["two"]}) as model:
        kept = model.cache_stats()["entries"]
    with opened(tiny_checkpoint, path, adapters=adapters) as model:
        assert 0 < kept < model.cache_stats()["entries"]


def test_the_limit_lets_in_the_latest_and_what_they_follow(tmp_path: Path) -> None:
    ops, path = open_ops("torch", "float32", 1), tmp_path / "cache"
    cache, piece = filled(ops, 0, 4), 256 * 64 * 8
    # Three whole pieces and one without the last token, as no prompt is stored to its end.
    assert [entry.nbytes for _, entry in cache.entries()][::-1] == [piece, piece, piece, piece - 64 * 8]
    file_of(path, ops).save(cache)
    for limit, count in ((0, 0), (piece - 1, 0), (piece, 1), (3 * piece + 9, 3), (4 * piece, 4)):
        found = PromptCache(limit)
        file_of(path, ops).recall(found, {NAMESPACE})
        assert len(found) == count
        assert found.nbytes <= limit
        tokens = list(range(1024))
        adopted, _ = found.adopt(Trail.of(NAMESPACE, tokens, PrefillPlan.of(len(tokens))))
        assert adopted == (0, 256, 512, 768, 1023)[count]


def test_a_model_without_a_file_has_none_to_save_to(tiny_torch: Any, tiny_checkpoint: Path) -> None:
    with pytest.raises(CacheFileError, match="there is no file to save to: load the model with"):
        tiny_torch.save_cache()
    with pytest.raises(BackendError, match="a prompt cache of 0 bytes has nothing to keep"):
        opened(tiny_checkpoint, Path("anywhere"), cache_bytes=0)


def test_only_what_has_changed_is_written(tiny_checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "cache"
    with opened(tiny_checkpoint, path) as model:
        answer(model)
    written = path.stat()
    with opened(tiny_checkpoint, path) as model:
        answer(model)
    assert path.stat().st_ino == written.st_ino
    with opened(tiny_checkpoint, path) as model:
        model.reset_cache()
    assert path.stat().st_ino != written.st_ino
    with opened(tiny_checkpoint, path) as model:
        assert model.cache_stats()["entries"] == 0

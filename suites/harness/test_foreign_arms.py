"""transformers and mlx-lm as arms over a model of two layers: what they say is what their logits prefer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paritygate.arms.base import Arm, ArmError
from paritygate.arms.hosted import HostedArm, driven
from paritygate.arms.registry import make_arm
from paritygate.case import Case, Sampler

VOCABULARY = 64
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "hidden_act": "silu",
    "dtype": "float32",
}


def save_model(directory: Path) -> None:
    """A llama of two layers with fixed random weights, whose tokens are letters and words."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    chance = np.random.default_rng(5)

    def normal(*shape: int) -> np.ndarray:
        return chance.normal(size=shape, scale=0.4).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": normal(VOCABULARY, 32),
        "model.norm.weight": np.ones(32, np.float32),
    }
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        for name, shape in (
            ("self_attn.q_proj", (32, 32)), ("self_attn.k_proj", (16, 32)), ("self_attn.v_proj", (16, 32)),
            ("self_attn.o_proj", (32, 32)), ("mlp.gate_proj", (64, 32)), ("mlp.up_proj", (64, 32)),
            ("mlp.down_proj", (32, 64)),
        ):  # fmt: skip
            weights[f"{prefix}{name}.weight"] = normal(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = np.ones(32, np.float32)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    # Byte-level spelling: the space is Ġ. The two bytes of é are tokens of their own, so a character spans tokens.
    letters = ["<s>", "</s>", "Ġ", "Ã", "©", *"abcdefghijklmnopqrstuvwxyzTQ.,"]
    vocabulary = {token: i for i, token in enumerate(letters)}
    vocabulary |= {f"Ġ{chr(97 + i)}": len(vocabulary) + i for i in range(VOCABULARY - len(vocabulary))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "</s>",
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("tiny")
    save_model(directory)
    return str(directory)


@pytest.fixture(scope="module")
def arms(model: str) -> Iterator[dict[str, Arm]]:
    made: dict[str, Arm] = {kind: HostedArm(kind, kind, {}, model) for kind in ("transformers", "mlx-lm")}
    for arm in made.values():
        arm.open()
    yield made
    for arm in made.values():
        arm.close()


@pytest.fixture(params=["transformers", "mlx-lm"])
def arm(request: pytest.FixtureRequest, arms: dict[str, Arm]) -> Arm:
    return arms[request.param]


CASE = Case(name="c", max_tokens=12, prompt="The quick brown fox", logprobs=3)


def test_an_answer_is_what_its_own_logits_prefer(arm: Arm) -> None:
    stream = arm.generate(CASE)
    prompt, ids = stream.prompt_token_ids or (), stream.token_ids or ()
    assert len(ids) > 2
    rows = arm.logits(prompt + ids, len(prompt) - 1)
    assert tuple(rows.argmax(axis=1)[: len(ids)]) == ids
    shifted = rows[0] - rows[0].max()
    expected = shifted - np.log(np.exp(shifted.astype(np.float64)).sum())
    first = (stream.positions or ())[0]
    assert first.logprob == pytest.approx(expected[first.token_id], abs=1e-4)
    assert [top.token_id for top in first.top] == list(np.argsort(-rows[0])[:3])


def test_a_stop_string_cuts_inside_a_token_and_a_limit_is_a_limit(arm: Arm) -> None:
    whole = arm.generate(CASE)
    stop = whole.text[3:5]
    cut = arm.generate(Case(name="c", max_tokens=12, prompt=CASE.prompt, stop=(stop,)))
    assert cut.text == whole.text[: whole.text.find(stop)]
    assert (cut.finish_cause, cut.finish_reason) == ("StopSequence", "stop")
    one = arm.generate(Case(name="c", max_tokens=1, prompt=CASE.prompt))
    assert one.token_ids == (whole.token_ids or ())[:1]
    assert (one.finish_cause, one.finish_reason) == ("Length", "length")


def test_a_seed_repeats_and_another_differs(arm: Arm) -> None:
    def drawn(seed: int) -> tuple[int, ...] | None:
        sampler = Sampler(temperature=3.0, seed=seed)
        return arm.generate(
            Case(name="c", max_tokens=12, prompt_token_ids=(5, 6, 7), sampler=sampler)
        ).token_ids

    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(1, 5)}) > 1


def test_the_two_engines_agree_within_float32(arms: dict[str, Arm]) -> None:
    """Two implementations of one model; a wrong rope, mask or weight would move logits by far more."""
    ours, theirs = (arm.logits(tuple(range(5, 45)), 0) for arm in arms.values())
    assert np.abs(ours - theirs).max() < 1e-3
    assert np.abs(ours).max() > 1.0


def test_a_manifest_says_the_settings_that_the_options_decide(model: str, arms: dict[str, Arm]) -> None:
    """A policy refuses identities by them, so a run must tell the same: also tokenline's own arms."""
    expected = {"threads": 1, "dtype": "float32"}
    for kind, arm in arms.items():
        settings = make_arm(kind, kind, {}, model).settings  # type: ignore[attr-defined]
        assert (
            settings.items() >= (expected | {"backend": "torch" if kind == "transformers" else "mlx"}).items()
        )
        assert arm.generate(CASE).manifest.items() >= settings.items()
    for kind in ("tokenline", "command", "http"):
        given = {"backend": "torch", "dtype": "bfloat16", "threads": 2}
        own = driven(kind, kind, given, model)
        own.open()
        told = own.generate(CASE).manifest
        own.close()
        settings = make_arm(kind, kind, given, model).settings  # type: ignore[attr-defined]
        assert settings == given
        assert told.items() >= settings.items()


def test_mlx_lms_own_detokenizer_is_used_unless_told(arms: dict[str, Arm]) -> None:
    """It trims a space at the start, which the plain one and transformers keep: the arm must not hide that."""
    theirs = arms["transformers"].generate(CASE)
    own = arms["mlx-lm"].generate(CASE)
    assert own.token_ids == theirs.token_ids
    assert own.manifest["detokenizer"] == "BPEStreamingDetokenizer"
    assert own.text == theirs.text.removeprefix(" ")


def test_a_penalty_that_transformers_lacks_is_refused_by_name(arm: Arm) -> None:
    case = Case(name="c", max_tokens=4, prompt="The", sampler=Sampler(presence_penalty=0.5))
    if arm.name == "transformers":
        with pytest.raises(ArmError, match="transformers' generate has no field for `presence_penalty`"):
            arm.generate(case)
    else:
        assert arm.generate(case).token_ids


@pytest.mark.parametrize("kind", ["transformers", "mlx-lm", "llama.cpp"])
def test_a_model_that_is_not_there_is_one_line(kind: str) -> None:
    made = HostedArm("x", kind, {}, "/no/such/model")
    with pytest.raises(
        ArmError, match=r"arm x: /no/such/model is no Hugging Face directory and no \.gguf file"
    ):
        made.open()
    made.close()


def test_llama_cpp_reads_no_directory(model: str) -> None:
    made = HostedArm("x", "llama.cpp", {}, model)
    with pytest.raises(ArmError, match=r"llama\.cpp reads \.gguf files"):
        made.open()
    made.close()

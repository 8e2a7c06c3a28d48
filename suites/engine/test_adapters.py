"""Adapters: what PEFT and mlx-lm save is read as they read it, used by the row, and anything else is refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
from distance import ENVELOPE, apart
from peft_adapters import adapted_logits, save_adapter, save_adapters

import tokenline
from tokenline.cli.app import exit_code
from tokenline.client import Model
from tokenline.errors import CheckpointError, RequestError
from tokenline.request import request_of

TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 256, 90)]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
EVERYTHING = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
SETTINGS: dict[str, dict[str, Any]] = {
    "some": {"r": 8, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]},
    "stabilized": {"r": 4, "lora_alpha": 8, "use_rslora": True, "target_modules": EVERYTHING},
    "patterns": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ATTENTION,
        "rank_pattern": {"q_proj": 2, r"^model\.layers\.2\.self_attn\.o_proj": 7},
        "alpha_pattern": {r"layers\.0\.self_attn\.v_proj": 32, "k_proj": 1},
    },
    "layers": {"r": 3, "lora_alpha": 9, "target_modules": EVERYTHING, "layers_to_transform": [0, 2]},
    "expression": {"r": 4, "lora_alpha": 4, "target_modules": r".*layers\.[12]\.mlp\.(up|gate)_proj"},
    "dora": {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": EVERYTHING},
    "dora of some": {"r": 2, "lora_alpha": 8, "use_dora": True, "target_modules": ["k_proj", "gate_proj"]},
}


@pytest.fixture(scope="module")
def adapters(
    tiny_oracle: transformers.LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    return save_adapters(tiny_oracle, tmp_path_factory.mktemp("adapters"), SETTINGS)


@pytest.fixture(scope="module")
def adapted(tiny_checkpoint: Path, backend: str, adapters: dict[str, Path]) -> Iterator[Model]:
    with Model(str(tiny_checkpoint), backend=backend, dtype="float32", threads=1, adapters=adapters) as model:
        yield model


@pytest.mark.parametrize("name", SETTINGS)
def test_what_peft_saved_says_what_peft_says(
    adapted: Model,
    tiny: Model,
    tiny_oracle: transformers.LlamaForCausalLM,
    adapters: dict[str, Path],
    name: str,
) -> None:
    theirs = adapted_logits(tiny_oracle, adapters[name], TOKENS)
    assert apart(tiny.logits(TOKENS), theirs) > 0.05
    assert apart(adapted.logits(TOKENS, adapter=name), theirs) < ENVELOPE
    assert np.array_equal(adapted.taps(TOKENS, adapter=name)["head"], adapted.logits(TOKENS, adapter=name))
    assert np.array_equal(adapted.logits(TOKENS), tiny.logits(TOKENS))


@pytest.mark.parametrize("name", ["patterns", "dora"])
def test_a_row_is_drawn_with_its_adapter(
    adapted: Model, tiny_oracle: transformers.LlamaForCausalLM, adapters: dict[str, Path], name: str
) -> None:
    """Greedy, token by token, against one forward of PEFT's."""
    said = adapted.generate(TOKENS, max_tokens=24, ignore_eos=True, adapter=name)
    theirs = adapted_logits(tiny_oracle, adapters[name], TOKENS + said["token_ids"])[len(TOKENS) - 1 : -1]
    best = np.sort(theirs, axis=-1)
    decided = best[:, -1] - best[:, -2] > 1e-3 * np.ptp(theirs)
    assert decided.sum() > 18
    assert (theirs.argmax(-1) == np.asarray(said["token_ids"]))[decided].all()
    assert said["manifest"]["adapter"] == name
    plain = adapted.generate(TOKENS, max_tokens=24, ignore_eos=True)
    assert plain["token_ids"] != said["token_ids"]
    assert (plain["manifest"]["adapter"], plain["manifest"]["adapter_hash"]) == (None, None)


def test_a_head_of_its_own_takes_an_adapter(
    tiny_checkpoint: Path, tiny_oracle: transformers.LlamaForCausalLM, backend: str, tmp_path: Path
) -> None:
    asked = {"r": 4, "lora_alpha": 8, "target_modules": r"lm_head|.*q_proj"}
    made = save_adapter(tiny_oracle, tmp_path / "head", 5, **asked)
    tensors = safetensors.numpy.load_file(made / "adapter_model.safetensors")
    # PEFT adds copies of the head and the embedding where it adapts one of them; without them the adapter is the same.
    kept = {name: tensor for name, tensor in tensors.items() if ".lora_" in name}
    assert len(kept) < len(tensors)
    with pytest.raises(CheckpointError, match=r"weight is no part of a projection's low-rank term"):
        tokenline.load(str(tiny_checkpoint), backend=backend, adapters={"head": made})
    safetensors.numpy.save_file(kept, made / "adapter_model.safetensors")
    theirs = adapted_logits(tiny_oracle, made, TOKENS)
    with Model(str(tiny_checkpoint), backend=backend, threads=1, adapters={"head": made}) as model:
        assert apart(model.logits(TOKENS, adapter="head"), theirs) < ENVELOPE


@pytest.mark.parametrize("use_dora", [False, True])
def test_quantized_weights_take_an_adapter_as_numbers_do(
    tiny_checkpoint: Path, backend: str, tmp_path: Path, use_dora: bool
) -> None:
    """The oracle's weights are those that MLX makes of its codes; a DoRA's lengths are of these too."""
    import mlx.core as mx

    oracle = transformers.AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in oracle.parameters():
            if parameter.ndim == 2:
                coded = mx.quantize(mx.array(parameter.numpy()), group_size=32, bits=4)
                numbers = mx.dequantize(*coded, group_size=32, bits=4)
                parameter.copy_(torch.from_numpy(np.array(numbers)))
    asked = {"r": 4, "lora_alpha": 8, "target_modules": EVERYTHING, "use_dora": use_dora}
    made = save_adapter(oracle, tmp_path / "adapter", 6, **asked)
    theirs = adapted_logits(oracle, made, TOKENS)
    with Model(
        str(tiny_checkpoint),
        backend=backend,
        dtype="float32",
        threads=1,
        weight_bits=4,
        weight_group=32,
        adapters={"it": made},
    ) as model:
        assert apart(model.logits(TOKENS, adapter="it"), theirs) < ENVELOPE


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("lora", {"num_layers": 2}),
        ("lora", {"num_layers": -1, "keys": ["self_attn.q_proj", "mlp.down_proj"]}),
        ("dora", {"num_layers": 3, "keys": ["self_attn.v_proj", "mlp.gate_proj"]}),
    ],
)
def test_what_mlx_lm_saved_says_what_mlx_lm_says(
    tiny_checkpoint: Path, backend: str, tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

    from paritygate.arms.mlx_lm_model import load_mlx

    parameters = {"rank": 4, "scale": 3.0, "dropout": 0.0}
    if "keys" in settings:
        parameters["keys"] = settings["keys"]
    made = load_mlx(tiny_checkpoint, threads=1)
    made.freeze()
    linear_to_lora_layers(made, settings["num_layers"], parameters, use_dora=kind == "dora")
    mx.random.seed(4)
    drawn = {
        name: value * 1.3 if name.endswith(".m") else 0.1 * mx.random.normal(value.shape)
        for name, value in tree_flatten(made.trainable_parameters())
    }
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), drawn)
    config = {"fine_tune_type": kind, "num_layers": settings["num_layers"], "lora_parameters": parameters}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    oracle = load_adapters(load_mlx(tiny_checkpoint, threads=1), str(tmp_path))
    oracle.eval()
    theirs = np.array(oracle(mx.array([TOKENS]))[0].astype(mx.float32))
    with Model(
        str(tiny_checkpoint), backend=backend, dtype="float32", threads=1, adapters={"it": tmp_path}
    ) as model:
        assert apart(model.logits(TOKENS), theirs) > 0.05
        assert apart(model.logits(TOKENS, adapter="it"), theirs) < ENVELOPE


def test_a_gguf_llama_takes_an_adapter_in_the_order_of_published_rows(
    checkpoint_path: Path, tmp_path: Path
) -> None:
    oracle = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint_path.parent, gguf_file=checkpoint_path.name, dtype=torch.float32
    ).eval()
    asked = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "up_proj"]}
    adapters = {
        name: save_adapter(oracle, tmp_path / name, seed, use_dora=name == "dora", **asked)
        for seed, name in enumerate(("lora", "dora"))
    }
    tokens = list(range(1000, 1040))
    theirs = {name: adapted_logits(oracle, made, tokens) for name, made in adapters.items()}
    del oracle
    with Model(str(checkpoint_path), backend="torch", dtype="float32", threads=1, adapters=adapters) as model:
        assert apart(model.logits(tokens), theirs["lora"]) > 0.05
        for name, logits in theirs.items():
            assert apart(model.logits(tokens, adapter=name), logits) < ENVELOPE


def test_nothing_cached_is_shared_between_adapters(adapted: Model) -> None:
    def asked(adapter: str | None) -> dict[str, Any]:
        return adapted.generate(TOKENS, max_tokens=8, ignore_eos=True, logprobs=2, adapter=adapter)

    cold = {}
    for adapter in (None, "patterns", "dora"):
        adapted.reset_cache()
        cold[adapter] = asked(adapter)
    adapted.reset_cache()
    for cached in (0, len(TOKENS) - 1):
        for adapter, alone in cold.items():
            said = asked(adapter)
            assert said["usage"]["cached_tokens"] == cached
            assert (said["token_ids"], said["logprobs"]) == (alone["token_ids"], alone["logprobs"])


def test_rows_of_several_adapters_at_once_say_what_each_says_alone(adapted: Model) -> None:
    """Of one adapter there are two rows, which may share a batch; of two none ever do."""
    asked = [
        request_of(
            TOKENS[: 40 + 5 * index], max_tokens=12, ignore_eos=True, adapter=adapter, cache_prompt=False
        )
        for index, adapter in enumerate((None, "dora", "patterns", "dora", None, "some", "patterns"))
    ]
    alone = [adapted.submit(request).result() for request in asked]
    together = [generation.result() for generation in [adapted.submit(request) for request in asked]]
    assert [each["token_ids"] for each in together] == [each["token_ids"] for each in alone]
    assert len({tuple(each["token_ids"]) for each in alone}) == len(asked)


def test_an_adapter_that_is_not_there_is_refused_with_those_that_are(adapted: Model, tiny: Model) -> None:
    assert adapted.adapters == tuple(SETTINGS)
    for asked in (
        lambda model: model.generate(TOKENS, adapter="nobody"),
        lambda model: model.logits(TOKENS, adapter="nobody"),
    ):
        with pytest.raises(RequestError, match=r"no adapter 'nobody': use one of some, stabilized") as raised:
            asked(adapted)
        assert raised.value.param == "adapter"
        with pytest.raises(RequestError, match="the model was loaded without"):
            asked(tiny)


def changed(**settings: Any) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        path = directory / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return change


def retensored(change: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        path = directory / "adapter_model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        change(tensors)
        safetensors.numpy.save_file(tensors, path)

    return apply


Q = "base_model.model.model.layers.0.self_attn.q_proj"
REFUSED: list[tuple[Callable[[Path], None], str]] = [
    (changed(peft_type="IA3"), "it is of the type 'IA3': give a LoRA or DoRA adapter"),
    (changed(peft_type="PREFIX_TUNING"), "it is of the type 'PREFIX_TUNING'"),
    (changed(bias="lora_only"), "it trains biases"),
    (changed(modules_to_save=["lm_head"]), r"its modules_to_save \['lm_head'\] is not supported"),
    (changed(trainable_token_indices=[1, 2]), "its trainable_token_indices"),
    (changed(target_parameters=["mlp.experts.gate_up_proj"]), "its target_parameters"),
    (changed(layer_replication=[[0, 2]]), "its layer_replication"),
    (changed(lora_bias=True), "its lora_bias"),
    (changed(a_setting_of_next_year=3), "its a_setting_of_next_year 3 is not supported"),
    (changed(init_lora_weights="pissa_niter_4"), "begun by 'pissa_niter_4', which changes the model's own"),
    (changed(r=9), "are of no projection at rank 9"),
    (changed(r=0), "has the rank 0"),
    (changed(lora_alpha=None), "the lora_alpha None"),
    (
        changed(target_modules=["q_proj", "v_proj"]),
        r"down_proj has matrices and is not among what adapter_config.json",
    ),
    (changed(target_modules="(q_proj"), r"'\(q_proj' is no regular expression"),
    (changed(exclude_modules=["down_proj"]), "down_proj has matrices and is not among"),
    (changed(layers_to_transform=[0, 1]), "layers.2.*has matrices and is not among"),
    (changed(use_dora=True), "has lora_A and lora_B where DoRA has"),
    (lambda d: (d / "adapter_config.json").unlink(), "has no adapter_config.json"),
    (lambda d: (d / "adapter_config.json").write_text("[]"), "does not hold an object"),
    (
        lambda d: (d / "adapter_model.safetensors").rename(d / "adapter_model.bin"),
        "has neither adapter_model.safetensors nor adapters.safetensors: save it as safetensors",
    ),
    (lambda d: (d / "adapter_model.safetensors").write_bytes(b"\x09"), "is truncated or corrupt"),
    (
        retensored(lambda t: t.update({"base_model.model.model.norm.weight": np.ones(64, np.float32)})),
        r"model\.norm\.weight is no part of a projection",
    ),
    (
        retensored(lambda t: t.pop(f"{Q}.lora_B.weight")),
        "q_proj has lora_A where LoRA has lora_A, lora_B: fetch",
    ),
    (
        retensored(lambda t: t.update({f"{Q}.lora_magnitude_vector": np.ones(64, np.float32)})),
        "has lora_A and lora_B and lora_magnitude_vector where LoRA",
    ),
    (
        retensored(lambda t: t.update({f"{Q}.lora_A.weight": np.ones((8, 48), np.float32)})),
        r"q_proj for a matrix \[64, 48\], the model's is \[64, 64\]: it was made for another model",
    ),
    (
        retensored(lambda t: [t.update({name.replace(".2.", ".7."): t.pop(name)}) for name in list(t)]),
        r"changes 3 modules that take no adapter here, such as layers\.7\.mlp\.down_proj",
    ),
    (retensored(lambda t: t.clear()), "holds no matrices"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_no_adapter_of_the_model_is_refused_by_name(
    tiny_checkpoint: Path,
    adapters: dict[str, Path],
    tmp_path: Path,
    change: Callable[[Path], None],
    message: str,
) -> None:
    directory = tmp_path / "broken"
    shutil.copytree(adapters["some"], directory)
    change(directory)
    with pytest.raises(CheckpointError, match=message) as raised:
        tokenline.load(str(tiny_checkpoint), backend="torch", adapters={"mine": directory})
    assert str(raised.value).startswith("the adapter 'mine' ")
    assert raised.value.mend


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fine_tune_type": "full"}, "it is of the fine_tune_type 'full'"),
        ({"lora_parameters": {"rank": 2, "alpha": 4}}, "have no rank or no scale"),
        ({"lora_parameters": {"rank": 3, "scale": 4.0}}, "are of no projection at rank 3"),
        ({"fine_tune_type": "dora"}, "has lora_a and lora_b where dora has"),
        ({"num_layers": 2}, r"layers\.0\.self_attn\.q_proj has matrices and is not among"),
        ({"lora_parameters": {"rank": 2, "scale": 4.0, "keys": ["mlp.up_proj"]}}, "is not among"),
    ],
)
def test_an_adapter_of_mlx_lm_is_held_to_its_configuration(
    tiny_checkpoint: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    sound = {"num_layers": 3, "lora_parameters": {"rank": 2, "scale": 4.0}}
    module = "model.layers.0.self_attn.q_proj"
    matrices = {"lora_a": np.ones((64, 2), np.float32), "lora_b": np.ones((2, 64), np.float32)}
    safetensors.numpy.save_file(
        {f"{module}.{part}": value for part, value in matrices.items()}, tmp_path / "adapters.safetensors"
    )
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(sound))
    tokenline.load(str(tiny_checkpoint), backend="torch", adapters={"mine": tmp_path}).close()
    path.write_text(json.dumps(sound | config))
    with pytest.raises(CheckpointError, match=message):
        tokenline.load(str(tiny_checkpoint), backend="torch", adapters={"mine": tmp_path})


def test_the_command_line_names_an_adapter(
    tiny_checkpoint: Path,
    adapters: dict[str, Path],
    adapted: Model,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    ids = ["--token-ids", ",".join(map(str, TOKENS)), "-n", "12", "--ignore-eos", "--json"]
    model = ["-m", str(tiny_checkpoint), "--backend", adapted.manifest["backend"], "--threads", "1"]

    def ran(*arguments: str) -> tuple[int, str, str]:
        code = exit_code(["generate", *model, *ids, *arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    dora = adapters["dora"]
    expected = adapted.generate(TOKENS, max_tokens=12, ignore_eos=True, adapter="dora")
    for given, name in ((f"mine={dora}", "mine"), (str(dora), "dora")):
        code, out, err = ran("--adapter", given)
        said = json.loads(out)
        assert (code, err) == (0, "")
        assert said["token_ids"] == expected["token_ids"]
        told = said["manifest"]
        assert (told["adapter"], told["adapter_hash"]) == (name, expected["manifest"]["adapter_hash"])
    two = ["--adapter", str(dora), "--adapter", f"other={adapters['some']}"]
    mend = "give one; `tokenline serve` takes several"
    assert ran(*two) == (2, "", f"tokenline: 2 adapters are given for one answer: {mend}\n")
    twice = ["--adapter", str(dora), "--adapter", f"dora={adapters['some']}"]
    mend = "name one: --adapter NAME=DIR"
    assert ran(*twice) == (2, "", f"tokenline: two adapters are named 'dora': {mend}\n")
    code, out, err = ran("--adapter", "gone=/no/where")
    assert (code, out) == (2, "")
    assert err.startswith("tokenline: the adapter 'gone' cannot be used: there is no directory /no/where: ")

"""Triage on the real engine: a weight that is planted wrong is found in its layer and block, across backends."""

from __future__ import annotations

import copy
import json
import shlex
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
import torch
import transformers

from paritygate import policy as policies
from paritygate.arms.tokenline_inprocess import TokenlineArm, TokenlineOptions
from paritygate.arms.transformers_inprocess import TransformersArm, TransformersOptions
from paritygate.case import Case
from paritygate.compare.identity import compare
from paritygate.gates.replies import check_of
from paritygate.policy import Envelope
from paritygate.triage import layers
from paritygate.triage.divergence import Divergence
from paritygate.triage.triage import Triage
from paritygate.verdict import Verdict
from tokenline.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))
from counting_arms import Pool

CASE = Case(name="greeting", max_tokens=8, prompt="Good day, how are you?")
CODES = tuple(b"Good day, how are you?")
FLOAT32 = Envelope(kl_mean=1e-9, kl_max=1e-8, max_abs_logit=1e-3, reason="as in this repository's policy")

POLICY = """\
schema = 1

[checkpoint]
name = "tiny"
model = "{model}"

[arms.torch]
kind = "tokenline"
backend = "torch"

[arms.mlx]
kind = "tokenline"
backend = "mlx"

[[cases]]
name = "greeting"
max_tokens = 8
prompt = "Good day, how are you?"
"""


def planted(model: transformers.LlamaForCausalLM, weight: str, clean: Path, directory: Path) -> Path:
    """The checkpoint with one matrix, or norm, turned upside down."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        parameter = changed.get_parameter(weight)
        parameter.copy_(parameter.flip(0))
    shutil.copytree(clean, directory)
    changed.save_pretrained(directory, max_shard_size="200KB")
    return directory


@pytest.fixture
def arms(
    request: pytest.FixtureRequest,
    tiny_oracle: transformers.LlamaForCausalLM,
    tiny_checkpoint: Path,
    tmp_path: Path,
):
    """A clean arm on MLX, and one on torch whose checkpoint has the fault."""
    faulty = planted(tiny_oracle, request.param, tiny_checkpoint, tmp_path / "faulty")
    made = [
        TokenlineArm("mlx", TokenlineOptions(backend="mlx"), str(tiny_checkpoint)),
        TokenlineArm("torch", TokenlineOptions(backend="torch"), str(faulty)),
    ]
    (tmp_path / "paritygate.toml").write_text(POLICY.format(model=faulty))
    for arm in made:
        arm.open()
    yield (*made, policies.load(tmp_path))
    for arm in made:
        arm.close()


def looked_into(arms) -> dict:
    clean, faulty, policy = arms
    reference, candidate = clean.generate(CASE), faulty.generate(CASE)
    comparison = compare(reference, candidate, floor=0.0, settings=())
    assert comparison.verdict is Verdict.DIVERGED
    check = check_of("identity", "identity/same/torch/greeting", comparison, seconds=0.0)
    found = Divergence(
        case=CASE, arm="torch", reference=reference, candidate=candidate, against="mlx", envelope=FLOAT32,
        index=comparison.details["index"],
    )  # fmt: skip
    told = Triage(policy, Pool(clean, faulty), lambda line: None).of(check, found).details["triage"]
    assert told["problems"] == []
    return told


@pytest.mark.parametrize(
    ("arms", "place"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("model.layers.2.self_attn.k_proj.weight", "layer 2, attention"),
        ("model.layers.1.mlp.gate_proj.weight", "layer 1, mlp"),
        ("model.layers.0.mlp.down_proj.weight", "layer 0, mlp"),
        ("lm_head.weight", "head"),
    ],
    indirect=["arms"],
)
def test_the_first_layer_that_differs_is_the_one_with_the_fault(arms, place: str) -> None:
    told = looked_into(arms)
    assert told["layers"]["first"]["place"] == place
    assert told["layers"]["first"]["max_abs"] > 100 * told["layers"]["first"]["allowed"]
    assert told["nearness"]["kl_max"] > FLOAT32.kl_max
    assert told["manifests"]["differing"]["weights_hash"]["kind"] == "decides what is said"


@pytest.mark.parametrize("arms", ["model.layers.1.mlp.gate_proj.weight"], indirect=True)
def test_the_smallest_prompt_diverges_again_without_the_harness(arms, capfd) -> None:
    clean, _, _ = arms
    told = looked_into(arms)
    ids, bound = told["smallest"]["token_ids"], told["smallest"]["max_tokens"]
    assert 0 < len(ids) < told["smallest"]["of"]
    program, *words = shlex.split(told["reproduce"][-1])
    assert program == "tokenline"
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    answer = json.loads(capfd.readouterr().out)
    right = clean.generate(msgspec.structs.replace(CASE.with_token_ids(tuple(ids)), max_tokens=bound))
    assert answer["prompt_token_ids"] == ids
    assert tuple(answer["token_ids"]) != right.token_ids


def test_transformers_and_the_engine_agree_in_every_array(tiny_checkpoint: Path) -> None:
    arms = (
        TransformersArm("transformers", TransformersOptions(), str(tiny_checkpoint)),
        TokenlineArm("torch", TokenlineOptions(backend="torch"), str(tiny_checkpoint)),
    )
    pairs = []
    for arm in arms:
        arm.open()
        pairs.append((arm.taps(CODES), arm.taps(CODES)))
        arm.close()
    assert list(pairs[0][0]) == list(pairs[1][0])
    share = layers.share_of(FLOAT32.max_abs_logit, pairs[0][0]["head"])
    assert not any(tap.above for tap in layers.taps_of(pairs[0], pairs[1], share))


def test_two_backends_without_a_fault_differ_in_no_layer(tiny_checkpoint: Path) -> None:
    pairs = []
    for backend in ("mlx", "torch"):
        arm = TokenlineArm(backend, TokenlineOptions(backend=backend), str(tiny_checkpoint))
        arm.open()
        pairs.append((arm.taps(CODES), arm.taps(CODES)))
        arm.close()
    share = layers.share_of(FLOAT32.max_abs_logit, pairs[0][0]["head"])
    taps = layers.taps_of(pairs[0], pairs[1], share)
    assert len(taps) == 15
    assert any(tap.max_abs > 0 for tap in taps)  # other kernels: they do round differently
    assert not any(tap.above for tap in taps)

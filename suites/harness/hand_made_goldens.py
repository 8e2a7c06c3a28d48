"""Oracles' answers made by hand, and the golden that they agree on."""

from __future__ import annotations

from paritygate.case import Case
from paritygate.golden.admission import admit
from paritygate.golden.oracles import OracleAnswer
from paritygate.golden.store import Acceptance, Golden
from paritygate.policy import GoldenPolicy
from paritygate.stream import Position, TopToken

POLICY = GoldenPolicy(
    directory="golden",
    margin_floor=0.02,
    noise_multiple=100,
    oracles=("transformers", "mlx-lm"),
    threads=(1, 2),
    reason="by hand",
)
CASE = Case(name="plain-one", kind="plain", max_tokens=2, prompt="One")
REASON = Acceptance(date="2026-01-01", reason="checked by hand")


def answer(
    oracle: str, threads: int, ids: tuple[int, ...] = (7, 8), margin: float = 0.5, **more: object
) -> OracleAnswer:
    positions = tuple(
        Position(token_id=i, token=f"t{i}", logprob=-0.1, top=(TopToken(i, f"t{i}", -0.1),), margin=margin)
        for i in ids
    )
    given = {
        "case": "plain-one",
        "oracle": oracle,
        "threads": threads,
        "versions": {oracle: "1"},
        "prompt_token_ids": (1,),
        "token_ids": ids,
        "text": "ab",
        "finish_reason": "length",
        "finish_cause": "Length",
        "positions": positions,
        "tokenizer_hash": "t",
        "template_hash": "c",
    }
    return OracleAnswer(**(given | more))


def answers(**last: object) -> list[OracleAnswer]:
    pairs = [(oracle, threads) for oracle in POLICY.oracles for threads in POLICY.threads]
    return [answer(*pair) for pair in pairs[:-1]] + [answer(*pairs[-1], **last)]


def golden(case: Case = CASE, machine: str = "m", **each: object) -> Golden:
    """What four runs agree on; `each` changes every answer alike."""
    given = [answer(run.oracle, run.threads, **each) for run in answers()]
    return admit(case, given, POLICY, weights_sha256="00", machine=machine)

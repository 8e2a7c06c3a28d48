"""Runs to draw: one green, one with every kind of trouble a page must show."""

from __future__ import annotations

import math
from typing import Any

from paritygate.run import Machine, Run
from paritygate.verdict import Check, Outcome, Verdict, exit_code

MACHINE = Machine("linux-x86_64-test", "Linux 6", "Test processor", 2, 8 << 30, "3.11.7")
ANSWER = ["The", " moon", " pulls", " the", " sea", ",", " and", " twice", " a", " day", " the", " water", " rises",
          ".", "\n", "Sailors", " know", " this", ".", " They", " wait", " for", " the", " tide", "."]  # fmt: skip


def replayed(name: str, seconds: float = 0.9) -> Check:
    return Check("golden", f"golden/torch/{name}", Outcome.PASS, Verdict.IDENTICAL, "64 tokens, 251 bytes: identical",
                 {"manifests": {"torch": {"backend": "torch", "dtype": "float32"}}}, seconds)  # fmt: skip


def diverged() -> Check:
    """A replay that says another word at token 20, as the comparison records it."""
    tokens = [[index, 100 + index, text] for index, text in enumerate(ANSWER)]
    return Check(
        "golden", "golden/mlx/chat-moon", Outcome.FAIL, Verdict.DIVERGED,
        "first differs at token 20: ' sleep' (512) where ' wait' (120) is expected (gap 1.32 and 0.08)",
        {
            "index": 20, "decided": True, "floor": 0.02,
            "reference": {"arm": "golden", "text": "".join(ANSWER), "finish_cause": "Length"},
            "candidate": {"arm": "mlx", "text": "", "finish_cause": "Length"},
            "at": {
                "reference": {"token_id": 120, "token": " wait", "gap": 1.32,
                              "top": [[120, " wait", -0.31], [512, " sleep", -1.63]]},
                "candidate": {"token_id": 512, "token": " sleep", "gap": 0.08,
                              "top": [[512, " sleep", -0.7], [120, " wait", -0.78]]},
            },
            "causes": ["the prefill partition differs: [[0, 31], [31, 32]] against [[0, 32]]"],
            "diff": [
                {"op": "equal", "reference": tokens[:20] * 2, "candidate": tokens[:20] * 2},
                {"op": "replace", "reference": tokens[20:22],
                 "candidate": [[20, 512, " sleep"], [21, 7, "<b>&"]]},
                {"op": "equal", "reference": tokens[22:24], "candidate": tokens[22:24]},
                {"op": "delete", "reference": tokens[24:], "candidate": []},
            ],
        }, 1.2,
    )  # fmt: skip


def figures(slower: float | None) -> dict[str, dict[str, Any]]:
    """Figures as the bench gate writes them; `slower` is the ratio of decode to a base, None without a base."""
    found: dict[str, dict[str, Any]] = {}
    for name, unit, value in (("decode", "ns per token", 49.8e6), ("prefill", "ns per prompt token", 3.4e6),
                              ("time-to-first-token", "ns", 212e6)):  # fmt: skip
        ratio = slower if name == "decode" and slower else 1.004
        head = value * ratio if slower else value
        found[name] = {
            "unit": unit, "lower_is_better": True, "ns": head, "backend": "torch", "dtype": "float32", "threads": 1,
            "memory_floor_ns": 21.5e6 if name == "decode" else None, "weight_bytes": 537_919_488,
            "read_bytes_per_second": 25e9, "prefill_tokens": 512, "prefill_pieces": [[0, 511], [511, 512]],
            "token_ns": [head * (1 + 0.03 * math.sin(i)) for i in range(31)] if name == "decode" else [],
        }  # fmt: skip
        if slower:
            found[name] |= {
                "base_ns": value, "base": "abc1234", "margin": 0.08,
                "base_token_ns": [value * (1 + 0.03 * math.cos(i)) for i in range(31)] if name == "decode" else [],
                "pairs_ns": [[value, head * (1 + 0.01 * math.sin(3 * i))] for i in range(6)],
            }  # fmt: skip
    return found


def run_of(checks: list[Check], drawn: dict[str, Any]) -> Run:
    return Run(
        started="2026-01-02T03:04:05+00:00", seconds=143.2, commit="0123456789abcdef", dirty=False,
        policy_hash="f" * 64, machine=MACHINE, checks=tuple(checks), exit=exit_code(checks), tier="real",
        manifests={"torch": {"backend": "torch", "dtype": "float32", "threads": 1}}, figures=drawn,
    )  # fmt: skip


def _passing() -> list[Check]:
    rules = ["one caller of loop detection", "one detokenizer", "sampler called from one place"]
    checks = [
        Check("structure", f"structure/{name}", Outcome.PASS, Verdict.HELD,
              "engine/tokenline/decode/finish.py:98 and nowhere else; the planted violation is caught.",
              {"why": "Because.", "violations": []}, 0.2)
        for name in rules
    ]  # fmt: skip
    checks += [replayed(f"case-{number:02}") for number in range(26)]
    checks += [
        Check(
            "identity", f"identity/{name}", Outcome.PASS, Verdict.IDENTICAL, "64 tokens: identical", {}, 2.0
        )
        for name in ("cli", "http", "http-streamed")
    ]
    return checks


def green_run() -> Run:
    """Everything passed, against a base."""
    drawn = figures(1.004)
    checks = _passing() + [
        Check("bench", f"bench/{name}", Outcome.PASS, Verdict.NO_SLOWER, f"{name} is no slower",
              {"figures": {name: drawn[name]}}, 30.0)
        for name in drawn
    ]  # fmt: skip
    return run_of(checks, drawn)


def red_run() -> Run:
    """A divergence, a broken rule, a slow decode, an undecided figure and an arm that did not start."""
    drawn = figures(1.21)
    checks = [*_passing(), diverged()]
    checks.append(Check(
        "structure", "structure/one definition of the max-token test", Outcome.FAIL, Verdict.BROKEN,
        "engine/tokenline/scheduler.py:91 compares 'len(row.generated) >= limit'. Two tests differ sooner or later.",
        {"why": "Two tests differ sooner or later.", "dead": [], "violations": [
            {"path": "engine/tokenline/scheduler.py", "line": 91, "what": "compares 'len(row.generated) >= limit'",
             "text": "return len(row.generated) >= limit"}]}, 0.3,
    ))  # fmt: skip
    checks.append(Check(
        "bench", "bench/decode", Outcome.FAIL, Verdict.SLOWER,
        "Decode is 21.0 % slower: 60.26 ms per token here, 49.80 ms at abc1234 (+10,458,000 ns per token); at least "
        "18.2 % in 6 pairs, confirmed in a second session (20.4 % in 6).", {"figures": {"decode": drawn["decode"]}},
        60.0,
    ))  # fmt: skip
    checks.append(Check("bench", "bench/prefill", Outcome.INCONCLUSIVE, Verdict.INCONCLUSIVE,
                        "Prefill is not decided: between -4.0 % and 12.1 % after 6 pairs, the margin is 8%.",
                        {"figures": {"prefill": drawn["prefill"]}}, 60.0))  # fmt: skip
    checks.append(Check("identity", "identity/server", Outcome.COULD_NOT_RUN, Verdict.SETUP_ERROR,
                        "arm http ended before it listened\x00", {"printed": "port in use\x1b[0m"}, 3.0))  # fmt: skip
    return run_of(checks, drawn)

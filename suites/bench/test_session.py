"""Sessions, the gate and its words, over observations whose true times are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paritygate.bench.base import Base
from paritygate.bench.gate import compare
from paritygate.bench.observation import Observation, Workload
from paritygate.bench.pairs import BenchError, Side, order
from paritygate.bench.session import first_difference, run_session
from paritygate.bench.settings import BenchPolicy
from paritygate.bench.work import more_work, work_faults
from paritygate.verdict import Check, Outcome, Verdict

TOKENS = tuple(range(100, 132))
POLICY = BenchPolicy()
BASE = Base("abc1234", "HEAD's parent")


def observation(
    scale: float = 1.0, prefill: float = 1.0, tokens: tuple[int, ...] = TOKENS, **counters
) -> Observation:
    """What an engine of 50 ms per token would show, its decode scaled by `scale`."""
    count = len(tokens)
    work = {
        "prefill_pieces": [[0, 7], [7, 8]], "prefill_forwards": 2, "decode_forwards": count - 1,
        "host_reads": count, "head_positions": count, "max_rows": 1, "bytes_copied": 64,
    }  # fmt: skip
    return Observation(
        engine_file="engine/tokenline/__init__.py",
        token_ns=tuple(int(50e6 * scale) for _ in range(count - 1)),
        prefill_ns=2e6 * prefill,
        first_token_ns=200e6 * prefill,
        token_ids=tokens,
        prompt_tokens=8,
        decode_counters=work | counters,
        prefill_counters={"prefill_pieces": [[0, 511], [511, 512]], "head_positions": 1},
        manifest={"backend": "torch", "dtype": "float32", "threads": 1},
        weight_bytes=538_000_000,
        read_bytes_per_second=25e9,
        load_average=0.5,
        open_seconds=1.0,
    )


def sides() -> tuple[Side, Side]:
    workload = Workload(kind="tokenline", options={}, model="m")
    return Side("base", Path("base"), workload), Side("head", Path("head"), workload)


def machine(
    seed: int,
    *,
    slower: float = 1.0,
    prefill: float = 1.0,
    spread: float = 0.01,
    seen: list[str] | None = None,
) -> Callable[[Side], Observation]:
    """A machine on which the head's decode takes `slower` times as long, with lognormal noise and slow drift."""
    generator = np.random.default_rng(seed)
    drift = [1.0]

    def observe(side: Side) -> Observation:
        if seen is not None:
            seen.append(side.name)
        drift[0] *= 1.01
        wobble = float(np.exp(generator.normal(0, spread))) * drift[0]
        head = side.name == "head"
        return observation(wobble * (slower if head else 1.0), wobble * (prefill if head else 1.0))

    return observe


def gate(observe: Callable[[Side], Observation], policy: BenchPolicy = POLICY) -> dict[str, Check]:
    base, head = sides()
    return {
        check.name: check for check in compare(base, head, BASE, policy, lambda line: None, observe=observe)
    }


def test_rounds_are_abba_then_baab() -> None:
    assert [order(0), order(1)] == [(False, True, True, False), (True, False, False, True)]
    seen: list[str] = []
    base, head = sides()
    run_session(base, head, POLICY, lambda line: None, observe=machine(1, seen=seen))
    assert seen == ["base", "head", "head", "base", "head", "base", "base", "head"]


def test_decode_twenty_percent_slower_goes_red_and_names_the_phase() -> None:
    for seed in range(20):
        checks = gate(machine(seed, slower=1.2))
        decode = checks["bench/decode"]
        assert (decode.verdict, decode.outcome) == (Verdict.SLOWER, Outcome.FAIL), decode.headline
        assert decode.headline.startswith("Decode is ")
        assert "ns per token)" in decode.headline
        assert "confirmed in a second session" in decode.headline
        assert checks["bench/prefill"].outcome is Outcome.PASS
        assert checks["bench/time-to-first-token"].outcome is Outcome.PASS
        assert decode.details["figures"]["decode"]["decision"]["ratio"] == pytest.approx(1.2, rel=0.05)


def test_prefill_slower_is_not_called_decode() -> None:
    checks = gate(machine(3, prefill=1.3))
    assert checks["bench/prefill"].verdict is Verdict.SLOWER
    assert checks["bench/decode"].verdict is Verdict.NO_SLOWER


@pytest.mark.parametrize("spread", [0.01, 0.03, 0.1])
def test_the_same_engine_is_never_red(spread: float) -> None:
    outcomes = [check.outcome for seed in range(150) for check in gate(machine(seed, spread=spread)).values()]
    assert Outcome.FAIL not in outcomes
    if spread == 0.01:
        assert outcomes.count(Outcome.PASS) >= 0.97 * len(outcomes)


def test_a_red_that_the_second_session_does_not_see_is_inconclusive() -> None:
    calls = [0]

    def observe(side: Side) -> Observation:
        calls[0] += 1
        return observation(1.3 if side.name == "head" and calls[0] <= 8 else 1.0 + calls[0] * 1e-4)

    decode = gate(observe)["bench/decode"]
    assert decode.verdict is Verdict.INCONCLUSIVE
    assert "not in the second" in decode.headline


def test_a_noisy_machine_uses_every_round_and_says_that_it_cannot_tell() -> None:
    base, head = sides()
    session = run_session(base, head, POLICY, lambda line: None, observe=machine(5, spread=0.4))
    assert session.rounds == POLICY.max_rounds
    assert gate(machine(5, spread=0.4))["bench/decode"].outcome is Outcome.INCONCLUSIVE


def test_time_ends_a_session_but_not_before_the_least_rounds() -> None:
    base, head = sides()
    now = [0.0]

    def clock() -> float:
        now[0] += 50.0
        return now[0]

    session = run_session(base, head, POLICY, lambda line: None, observe=machine(5, spread=0.4), clock=clock)
    assert session.rounds == POLICY.min_rounds


def test_a_sample_with_other_tokens_is_void_and_all_void_is_an_error() -> None:
    base, head = sides()
    calls = [0]

    def once(side: Side) -> Observation:
        calls[0] += 1
        wrong = side.name == "head" and calls[0] == 3
        return observation(1 + calls[0] * 1e-4, tokens=(*TOKENS[:5], 9, *TOKENS[6:]) if wrong else TOKENS)

    session = run_session(base, head, POLICY, lambda line: None, observe=once)
    assert (len(session.pairs), session.void) == (3, [
        "head: token 5 is not the one expected there, so the sample timed other work"
    ])  # fmt: skip

    expected = Workload(kind="tokenline", options={}, model="m", expected=(1, 2, 3))
    with pytest.raises(BenchError, match="token 0 is not the one expected"):
        run_session(base, Side("head", Path("head"), expected), POLICY, lambda line: None, observe=machine(1))


def test_a_base_that_says_other_tokens_can_still_be_timed() -> None:
    base, head = sides()
    session = run_session(
        base, head, POLICY, lambda line: None,
        observe=lambda side: observation(tokens=TOKENS if side.name == "head" else TOKENS[::-1]),
    )  # fmt: skip
    assert (len(session.pairs), session.void) == (4, [])


@pytest.mark.parametrize(
    ("ours", "theirs", "index"),
    [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1, 2), (1,), 1), ((), (4,), 0)],
)
def test_first_difference(ours: tuple[int, ...], theirs: tuple[int, ...], index: int | None) -> None:
    assert first_difference(ours, theirs) == index


@pytest.mark.parametrize(
    ("counters", "says"),
    [
        ({"decode_forwards": 32}, "decode_forwards is 32 for 32 tokens, 31 are needed"),
        ({"host_reads": 64}, "host_reads is 64 for 32 tokens, 32 are needed"),
        ({"head_positions": 40}, "head_positions is 40 for 32 tokens, 32 are needed"),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"host_reads": None}, "the engine reports no host_reads"),
    ],
)
def test_work_counters_gate_exactly(counters: dict[str, int], says: str) -> None:
    assert work_faults(observation()) == []
    (fault,) = work_faults(observation(**counters))
    assert says in fault


def test_a_head_over_the_whole_prompt_and_new_copies_are_named() -> None:
    wide = observation()
    wide.prefill_counters["head_positions"] = 512
    assert work_faults(wide) == ["a prefill of 512 tokens ran the head at 512 positions"]
    assert more_work(observation(), observation(bytes_copied=128)) == ["bytes_copied is 128, 64 at the base"]


def test_more_work_than_the_base_is_red_even_when_no_slower() -> None:
    def observe(side: Side) -> Observation:
        return observation(bytes_copied=64 if side.name == "base" else 65)

    checks = gate(observe)
    assert checks["bench/work"].outcome is Outcome.FAIL
    assert checks["bench/decode"].outcome is Outcome.PASS


def test_a_figure_can_have_a_margin_of_its_own() -> None:
    lenient = BenchPolicy(margins={"prefill": 0.5})
    checks = gate(machine(3, prefill=1.3), lenient)
    assert checks["bench/prefill"].outcome is Outcome.PASS
    assert checks["bench/time-to-first-token"].outcome is Outcome.FAIL
    with pytest.raises(ValueError, match="no figure 'prefil'"):
        BenchPolicy(margins={"prefil": 0.5})


def test_the_memory_floor_is_bytes_over_bandwidth() -> None:
    assert observation().memory_floor_ns == pytest.approx(538e6 / 25e9 * 1e9)

"""Parity in a team's own pytest suite: a marker that runs a claim's checks, open arms, comparisons, a skip budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from paritygate.pytest_budget import Budget, register_budget

if TYPE_CHECKING:
    from paritygate.arms.base import Arm
    from paritygate.compare.comparison import Comparison
    from paritygate.policy import Policy
    from paritygate.pytest_claims import Parity
    from paritygate.stream import Stream

MARKER = (
    "parity(claim, arms=None, cases=None): run the checks of this claim of paritygate.toml, then the test"
)

_parity = pytest.StashKey["Parity"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "parity_skips", "How many tests of a session may be skipped or fail as expected.", default=None
    )
    parser.addini("parity_root", "The folder that holds paritygate.toml.", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    register_budget(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    parity = config.stash.get(_parity, None)
    if parity is not None:
        parity.close()


def _session(config: pytest.Config) -> Parity:
    """The policy and the arms that all tests share, made when the first one asks."""
    if _parity not in config.stash:
        # Heavy: numpy and what an arm needs. A suite without parity tests does not pay for it.
        from paritygate.pytest_claims import Parity

        config.stash[_parity] = Parity(config.rootpath / config.getini("parity_root"))
    return config.stash[_parity]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("parity"):
            # On every report of the test, also of one that is skipped: what was selected must show what it measured.
            item.user_properties.append((Budget.SELECTED, str(mark.kwargs.get("claim", ""))))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    for mark in item.iter_markers("parity"):
        parity = _session(item.config)
        checks = parity.run(mark.args, mark.kwargs)
        item.user_properties += parity.properties(checks)
        if said := parity.failure(checks):
            pytest.fail(said, pytrace=False)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    parity = item.config.stash.get(_parity, None)
    if parity is not None and call.excinfo is not None:
        parity.after_error(call.excinfo.value)
    return (yield)


@pytest.fixture(scope="session")
def parity_policy(request: pytest.FixtureRequest) -> Policy:
    """The paritygate.toml of this suite, typed."""
    return _session(request.config).policy


@pytest.fixture
def parity_arm(request: pytest.FixtureRequest) -> Callable[[str], Arm]:
    """Gives an open arm by name; each is started once a session and stopped at its end."""
    return _session(request.config).arm


@pytest.fixture
def parity_compare(request: pytest.FixtureRequest) -> Callable[..., Comparison]:
    """`parity_compare(reference, candidate)`: the comparison; the test fails, with the diff, unless it is IDENTICAL."""
    parity = _session(request.config)

    def compare(
        reference: Stream, candidate: Stream, *, passing: tuple[str, ...] = ("IDENTICAL",)
    ) -> Comparison:
        found = parity.compare(reference, candidate)
        request.node.user_properties.append(("parity_verdict", str(found.verdict)))
        if found.verdict not in passing:
            __tracebackhide__ = True
            pytest.fail(parity.told(request.node.name, found), pytrace=False)
        return found

    return compare

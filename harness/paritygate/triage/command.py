"""The commands that show a divergence again, run where the run that saw it was started."""

from __future__ import annotations

from typing import Any

from paritygate.invocation import Invocation, joined
from paritygate.policy import Policy
from paritygate.triage.divergence import Divergence

TOKENLINE_KINDS = ("tokenline", "command", "http")


def same_check(check: str, invocation: Invocation) -> str:
    """The check alone, as it ran."""
    gate, *rest = check.split("/")
    if gate == "golden" and len(rest) == 2:
        return invocation.command("golden", "replay", rest[1], "--arm", rest[0])
    return invocation.command("replay", check)


def _ids(smallest: dict[str, Any]) -> str:
    return ",".join(str(token) for token in smallest["token_ids"])


def smallest_again(found: Divergence, check: str, smallest: dict[str, Any], invocation: Invocation) -> str:
    """Both sides on the smallest prompt."""
    bounds = ("--token-ids", _ids(smallest), "--max-tokens", smallest["max_tokens"])
    if found.cached:
        return invocation.command("replay", check, *bounds)
    arms = ("--arm", found.other, "--arm", found.arm)
    return invocation.command("replay", found.case.name, *arms, *bounds)


def engine_alone(found: Divergence, policy: Policy, smallest: dict[str, Any]) -> str | None:
    """tokenline without the harness on the smallest prompt; None for an arm of another engine or a drawn answer."""
    arm = policy.arms.get(found.arm)
    if arm is None or arm.kind not in TOKENLINE_KINDS or not found.greedy:
        return None
    options = arm.options
    if options.get("command") or options.get("url"):
        return None
    settings: list[object] = []
    for name, default in (("backend", "auto"), ("dtype", "float32"), ("threads", 1)):
        settings += [f"--{name}", options.get(name, default)]
    prompt = (
        "--token-ids",
        _ids(smallest),
        "--max-tokens",
        smallest["max_tokens"],
        "--logprobs",
        2,
        "--json",
    )
    return joined("tokenline", "generate", "-m", policy.checkpoint.location, *settings, *prompt)


def commands(found: Divergence, policy: Policy, check: str, smallest: dict[str, Any] | None) -> list[str]:
    """From the check itself to the engine alone."""
    shown: list[str | None] = [same_check(check, policy.invocation)]
    if found.recorded is not None and not check.endswith(f"/{found.case.name}"):
        # A check of all of a claim's goldens: the worst of them alone.
        shown.append(same_check(f"golden/{found.arm}/{found.case.name}", policy.invocation))
    if smallest and smallest.get("token_ids"):
        shown.append(smallest_again(found, check, smallest, policy.invocation))
        if not found.cached:
            shown.append(engine_alone(found, policy, smallest))
    return [command for command in shown if command]

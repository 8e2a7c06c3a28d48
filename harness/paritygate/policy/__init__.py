"""paritygate.toml, typed: what is tested, how it is run, and what it is held to."""

from paritygate.policy.claims import (
    AbortClaim,
    BatchClaim,
    BoundClaim,
    CacheClaim,
    Claim,
    EnvelopeClaim,
    GoldenClaim,
    HistoryClaim,
    IdentityClaim,
    PartitionClaim,
)
from paritygate.policy.load import POLICY_FILE, POLICY_SCHEMA, load, policy_of
from paritygate.policy.policy import (
    ArmPolicy,
    CheckpointPolicy,
    Envelope,
    GoldenPolicy,
    MembersPolicy,
    Policy,
    ReusePolicy,
    Waiver,
)
from paritygate.policy.reader import PolicyError

__all__ = [
    "POLICY_FILE", "POLICY_SCHEMA", "AbortClaim", "ArmPolicy", "BatchClaim", "BoundClaim", "CacheClaim",
    "CheckpointPolicy", "Claim", "Envelope", "EnvelopeClaim", "GoldenClaim", "GoldenPolicy", "HistoryClaim",
    "IdentityClaim", "MembersPolicy", "PartitionClaim", "Policy", "PolicyError", "ReusePolicy", "Waiver", "load",
    "policy_of",
]  # fmt: skip

"""Does an adapter keep the protocol of arms? For its author: on the command line, or from pytest."""

from paritygate.conformance.suite import CHECKS, Finding, assert_conforms, conformance

__all__ = ["CHECKS", "Finding", "assert_conforms", "conformance"]

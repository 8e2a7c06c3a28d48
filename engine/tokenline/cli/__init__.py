"""The command line: a client of `tokenline.client`, text to stdout, everything else to stderr."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code: 0, 1 (a row failed), 2 (bad input), 130 (interrupted)."""
    try:
        # Here: Ctrl-C while the commands are being imported is as quiet as later.
        from tokenline.cli.app import exit_code
    except KeyboardInterrupt:
        sys.stderr.write("tokenline: interrupted\n")
        sys.exit(130)
    sys.exit(exit_code(sys.argv[1:] if arguments is None else arguments))

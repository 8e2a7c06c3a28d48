"""The command line: a client of `tokenline.client`, text to stdout, everything else to stderr."""

from tokenline.cli.app import main

__all__ = ["main"]

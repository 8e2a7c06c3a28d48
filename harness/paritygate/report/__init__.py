"""What a run looks like: a table in the terminal, report.json, JUnit XML and a page."""

from paritygate.report.table import print_table
from paritygate.report.write import write

__all__ = ["print_table", "write"]

"""What a run looks like: a table in the terminal, report.json, JUnit XML and a page."""

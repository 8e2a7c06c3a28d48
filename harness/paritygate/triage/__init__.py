"""Triage: what is known about a divergence beyond that it happened, and how to see it again."""

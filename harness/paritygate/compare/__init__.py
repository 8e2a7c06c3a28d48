"""Comparisons: what two streams, or two sets of logits, say about each other."""

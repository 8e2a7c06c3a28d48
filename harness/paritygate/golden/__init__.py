"""Goldens: streams recorded from engines that are not ours, reviewed, and replayed."""

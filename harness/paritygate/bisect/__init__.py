"""Bisection: the commit from which on a case says something else."""

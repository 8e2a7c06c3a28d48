"""Faults: known defects planted one at a time, and the matrix of which gate catches each."""

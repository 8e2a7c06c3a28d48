"""B=1 benchmarks that asv runs over commits."""

"""Is this checkout as fast as its base? Pairs of fresh processes, a margin fixed beforehand, exact work counters."""

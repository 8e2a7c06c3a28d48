"""Arms: the ways to run an engine. An engine joins through the entry point group `paritygate.arms`."""

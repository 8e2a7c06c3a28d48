"""Rules over source code: what may call, define, compute and import what, and where."""

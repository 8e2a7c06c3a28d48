"""`paritygate init`: a first policy, from a few answers."""

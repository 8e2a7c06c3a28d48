"""paritygate: a gate that proves an inference engine still says the same thing, as fast as before."""

"""Gates: each turns the claims of a policy into checks."""

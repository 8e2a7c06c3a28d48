"""Weights on disk: a directory, a .gguf file or an alias to config, tokenizer and arrays."""

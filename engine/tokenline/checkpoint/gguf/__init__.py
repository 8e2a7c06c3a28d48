"""GGUF files: metadata to a Hugging Face configuration, matrices to Hugging Face names, orders and values.

`architectures` is the table of what each of llama.cpp's architectures says; the other files are what its rows are made
of. Every row is one that llama.cpp itself was asked about (`suites/families/test_gguf.py`).
"""

from tokenline.checkpoint.gguf.architectures import ARCHITECTURES
from tokenline.checkpoint.gguf.file import metadata, read_gguf
from tokenline.checkpoint.gguf.reading import family_and_config, tensors

__all__ = ["ARCHITECTURES", "family_and_config", "metadata", "read_gguf", "tensors"]

"""From logits to the next token of every row."""

from tokenline.decode.sampling.parameters import RowParameters
from tokenline.decode.sampling.sampler import Drawn, sample

__all__ = ["Drawn", "RowParameters", "sample"]

"""From logits to the next token of every row."""

from tokenline.decode.sampling.breakers import BreakerTable
from tokenline.decode.sampling.drawn import Drawn
from tokenline.decode.sampling.parameters import RowDraw, RowParameters
from tokenline.decode.sampling.report import told_of
from tokenline.decode.sampling.sampler import sample

__all__ = ["BreakerTable", "Drawn", "RowDraw", "RowParameters", "sample", "told_of"]

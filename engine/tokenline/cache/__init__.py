"""What a layer remembers between forwards."""

from tokenline.cache.base import AttentionCache, LayerCache
from tokenline.cache.chunked import ChunkedCache
from tokenline.cache.dense import DenseCache
from tokenline.cache.latent import LatentCache
from tokenline.cache.pair import PairCache
from tokenline.cache.recurrent import RecurrentCache
from tokenline.cache.state import CacheState
from tokenline.cache.window import WindowCache

__all__ = [
    "AttentionCache",
    "CacheState",
    "ChunkedCache",
    "DenseCache",
    "LatentCache",
    "LayerCache",
    "PairCache",
    "RecurrentCache",
    "WindowCache",
]

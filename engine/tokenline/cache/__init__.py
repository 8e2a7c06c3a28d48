"""What a layer remembers between forwards."""

from tokenline.cache.base import LayerCache
from tokenline.cache.dense import DenseCache

__all__ = ["DenseCache", "LayerCache"]

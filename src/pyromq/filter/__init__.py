"""SQL92 expressions over the properties of a message: parsed, bounded, compiled to closures; and the bits of a Bloom
filter that say beforehand whom a message may concern (docs/spec/broker.md 7)."""

from .bloom import BloomFilter
from .cache import compile_filter
from .evaluation import Filter

__all__ = ["BloomFilter", "Filter", "compile_filter"]

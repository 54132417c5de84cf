"""Small vocabularies for grammars."""

from logitsmith.grammars import BYTES

__all__ = ["BYTES"]

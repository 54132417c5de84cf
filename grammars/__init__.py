"""Grammars: what may come next."""

from .constraint import Constraint

__all__ = ["Constraint"]

"""The command `gen`."""

from .app import main

__all__ = ["main"]

"""The commands of a chat: lines that begin with a slash."""

from __future__ import annotations

from .registry import COMMANDS, complete_line, is_command, run_command

__all__ = ["COMMANDS", "complete_line", "is_command", "run_command"]

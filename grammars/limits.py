"""Limits on the size of a grammar, and on what llguidance may spend on it."""

from __future__ import annotations

from llguidance import LLParserLimits


def _limits(step_lexer_fuel: int) -> LLParserLimits:
    return LLParserLimits(
        max_items_in_row=20_000,
        initial_lexer_fuel=4_000_000,
        step_lexer_fuel=step_lexer_fuel,
        step_max_items=2_000_000,
        verbose_errors=False,
    )


PARSER_LIMITS = _limits(step_lexer_fuel=2_000_000)
"""Higher than llguidance's defaults: an ambiguous grammar is slow to follow, but exact."""

SEARCH_LIMITS = _limits(step_lexer_fuel=50_000)
"""For a search of thousands of steps. A counted repetition of ambiguous parts needs more fuel with each step."""

MAX_COMPLETION_BYTES = 20_000
"""The longest text that closes a sentence; llguidance takes 9 s to follow one of 100,000 bytes."""

MAX_SOURCE_CHARACTERS = 1_000_000
"""The longest text of a grammar."""

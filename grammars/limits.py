"""How much work llguidance may do for one grammar, before it gives up with an error."""

from __future__ import annotations

from llguidance import LLParserLimits

LIMITS = LLParserLimits(
    max_items_in_row=20_000,
    initial_lexer_fuel=4_000_000,
    step_lexer_fuel=2_000_000,
    step_max_items=2_000_000,
    verbose_errors=False,
)
"""Above llguidance's own: an ambiguous grammar is slow to follow, but exact."""

MAX_SOURCE = 1_000_000
"""Characters of a grammar's text."""

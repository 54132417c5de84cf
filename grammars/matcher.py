"""llguidance's matchers. A grammar that may crash it is compiled in another process first; see `compile_guard`."""

from __future__ import annotations

from llguidance import LLMatcher, LLParserLimits

from .compile_guard import check_in_other_process, is_plainly_safe
from .tokenizer import PARSER_LIMITS, Vocabulary, tokenizer_of


def new_matcher(vocabulary: Vocabulary, lark: str, limits: LLParserLimits = PARSER_LIMITS) -> LLMatcher:
    """Compile a grammar in llguidance's dialect of Lark."""
    # ``get_error`` of the matcher tells whether it is valid.
    # Raises ``GrammarError`` for a grammar that crashes llguidance, or takes it too much time or memory.
    if not is_plainly_safe(lark):
        check_in_other_process(lark)
    return LLMatcher(tokenizer_of(vocabulary), lark, log_level=0, limits=limits)

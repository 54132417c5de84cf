"""The commands that explain an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....common import count_noun
from ...errors import note
from ...interrupt import interruptible
from .command import ChatCommand, refuse_argument

if TYPE_CHECKING:
    from ..terminal.chat import Chat

_TOP = 10
"""How many of the likeliest tokens of each stage are shown."""


def _next(chat: Chat, argument: str) -> None:
    """Show what the next token of the last answer would be drawn from, or that after another beginning of it."""
    from ....engine import trace_next
    from ....samplers import build
    from ...render.next_token import NamedNextToken, show_table
    from ...render.progress import reading

    model, head = chat.session.model, chat.conversation.head
    beginning = argument
    if not argument and head is not None and head.role == "assistant":
        beginning = head.content
    settings = chat.settings.for_answer()
    chain = build(list(settings.steps), seed=settings.seed, vocab=model.vocabulary)
    constraint = None if settings.grammar is None or beginning else settings.grammar.start(model.vocabulary)
    if settings.grammar is not None and beginning:
        note("the table is without the grammar, which holds from the beginning of an answer")
    prompt = chat.session.prompt_of_answer(beginning)
    with interruptible() as interrupt, reading() as progress, interrupt.ending_soon():
        result = trace_next(
            model,
            prompt,
            chain,
            constraint,
            top=_TOP,
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
    if result is not None:
        show_table(NamedNextToken(model, chain, result, [], []))


def _stats(chat: Chat, argument: str) -> None:
    from ...render.stats import speed_line

    refuse_argument("stats", argument)
    conversation, use = chat.conversation, chat.session.use()
    record = None if (answer := conversation.last_answer()) is None else conversation.answer_record(answer)
    if record is not None and record.result is not None and "usage" in record.result:
        usage, times = record.result["usage"], record.result["timings"]
        print(speed_line("prompt", usage["prompt_tokens"], times["prompt"]))
        print(speed_line("generation", usage["completion_tokens"], times["generation"]))
        print(f"finish      {record.result['finish_reason']}, seed {record.recipe.seed}")
    path, everything = conversation.messages(), conversation.all_messages()
    others = f", {len(everything) - len(path):,} in other branches" if len(everything) > len(path) else ""
    print(f"context     {use.tokens:6,} of {use.length:,} tokens")
    print(f"chat        {conversation.id or 'not stored'}, {count_noun(len(path), 'message')}{others}")


COMMANDS = (
    ChatCommand("next", "[TEXT]", "Show what the next token would be drawn from, also after TEXT.", _next),
    ChatCommand("stats", "", "Show the speed of the last answer, and how full the context is.", _stats),
)

"""The commands that explain an answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ....common.text import count_noun
from ...errors import note
from ...interrupt import interruptible
from .command import ChatCommand, ChatCommandError, refuse_argument

if TYPE_CHECKING:
    from ....logprobs.events import Token
    from ..store.records import StoredAnswer
    from ..terminal.chat import Chat

_TOP = 10
"""How many of the likeliest tokens of each stage are shown."""


def _next(chat: Chat, argument: str) -> None:
    """Show what the next token of the last answer would be drawn from, or that after another beginning of it."""
    from ....engine.next_token import trace_next
    from ....samplers.building import build
    from ...render.next_token import NamedNextToken, show_table
    from ...render.progress import reading
    from ..replay import constraint_of

    model, head = chat.session.model, chat.conversation.head
    beginning = argument
    if not argument and head is not None and head.role == "assistant":
        beginning = head.content
    settings = chat.settings.for_answer()
    chain = build(list(settings.steps), seed=settings.seed, vocab=model.vocabulary)
    constraint = constraint_of(model, settings.grammar, beginning)
    prompt = chat.session.prompt_of_answer(beginning)
    with interruptible() as interrupt, reading() as progress, interrupt.ending_soon():
        result = trace_next(
            model,
            prompt,
            chain,
            constraint,
            top=_TOP,
            exact_reuse=True,
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
    if result is not None:
        show_table(NamedNextToken(model, chain, result, [], []))


def _why(chat: Chat, argument: str) -> None:
    """Show how a token of the last answer was chosen: its number from 0, or a text that it has."""
    from ...render.token_trace import show_token

    answer = chat.conversation.last_answer()
    if answer is None:
        raise ChatCommandError("there is no answer to explain")
    record = chat.conversation.answer_record(answer)
    if record is None:
        raise ChatCommandError(
            "no model made this answer here: it was typed, or made below another system message"
        )
    number = _token_number(chat, record, argument)
    token = _traced_token(chat, record, number)
    if token is None or token.trace is None:
        note("the answer was not made again up to this token")
        return
    show_token(token, token.trace, number)


def _token_number(chat: Chat, record: StoredAnswer, argument: str) -> int:
    """The number of the token that is meant. Raises ``ChatCommandError``."""
    count = len(record.token_ids)
    if argument.isdecimal():
        number = int(argument)
        if number >= count:
            raise ChatCommandError(f"/why {number}: the answer has {count_noun(count, 'token')}, from 0 on")
        return number
    if not argument:
        return 0
    vocabulary = chat.session.model.vocabulary
    wanted = argument.strip("'\"") or argument
    pieces = (vocabulary.piece(token).decode("utf-8", "replace") for token in record.token_ids)
    number = next((number for number, piece in enumerate(pieces) if wanted in piece), -1)
    if number < 0:
        raise ChatCommandError(f"/why: no token of the answer has the text {wanted!r}")
    return number


def _traced_token(chat: Chat, record: StoredAnswer, number: int) -> Token | None:
    """The token as it is made again with a trace; None after Ctrl-C."""
    from ....logprobs.events import Token
    from ...render.progress import reading

    tokens: list[Token] = []
    with interruptible() as interrupt, reading() as progress, interrupt.ending_soon():
        events = chat.session.replay(
            record, _TOP, number + 1, is_interrupted=lambda: interrupt.requested, progress=progress
        )
        tokens.extend(event for event in events if isinstance(event, Token))
    return tokens[number] if number < len(tokens) else None


def _stats(chat: Chat, argument: str) -> None:
    from ...render.stats import speed_line
    from ...render.text import terminal_safe

    refuse_argument("stats", argument)
    conversation, use = chat.conversation, chat.session.use()
    print(terminal_safe(f"model       {chat.session.model.name}", sys.stdout))
    record = None if (answer := conversation.last_answer()) is None else conversation.answer_record(answer)
    if record is not None and record.result is not None and "usage" in record.result:
        usage, times = record.result["usage"], record.result["timings"]
        kept = usage["cached_tokens"]
        print(speed_line("prompt", usage["prompt_tokens"] - kept, times["prompt"]))
        print(f"reused      {kept:6,} tokens of the prompt")
        print(speed_line("generation", usage["completion_tokens"], times["generation"]))
        print(f"finish      {record.result['finish_reason']}, seed {record.recipe.seed}")
    path, everything = conversation.messages(), conversation.all_messages()
    others = f", {len(everything) - len(path):,} in other branches" if len(everything) > len(path) else ""
    print(f"context     {use.tokens:6,} of {use.length:,} tokens")
    print(f"chat        {conversation.id or 'not stored'}, {count_noun(len(path), 'message')}{others}")


COMMANDS = (
    ChatCommand("next", "[TEXT]", "Show what the next token would be drawn from, also after TEXT.", _next),
    ChatCommand("why", "[TOKEN]", "Show how a token of the last answer was chosen: number or text.", _why),
    ChatCommand("stats", "", "Show the model, the speed of the last answer, how full the context is.", _stats),
)

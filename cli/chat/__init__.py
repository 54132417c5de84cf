"""The lower half of `gen chat`: conversations, their store, and a model's answers in them. Prints nothing.

A `ChatStore` holds the conversations of a user. A `Conversation` stands at a message in its tree of messages;
each method that changes it returns when that is stored. A `ChatSession` lets a model answer there, as an iterator
of the engine's events::

    store = ChatStore.open()
    conversation = Conversation.new(store, report=note)
    session = ChatSession(model, conversation, report=note)
    conversation.add_user("Hello")
    for event in session.answer(AnswerSettings(steps=settings.steps, seed=1)):
        ...

To branch, `Conversation.goto` an earlier message and add another one behind it. An answer is the one that
`generate` gives for the same messages in an empty context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...common.lazy import lazy_exports

if TYPE_CHECKING:
    from .answer_recording import visible_text
    from .answer_settings import AnswerSettings
    from .context_room import ContextUse
    from .conversation import Conversation
    from .errors import ChatError, ContextFullError, ReplayError
    from .export import jsonl_of, markdown_of
    from .prompt_cache import keep_prompt_cache, take_up_prompt_cache
    from .reasoning import AnswerPart, ReasoningSplitter
    from .session import ChatSession
    from .store.chat_store import ChatStore
    from .store.errors import StoreError, StoreWriteError
    from .store.location import store_path
    from .store.records import AnswerRecipe, ConversationSummary, SearchHit, StoredAnswer, StoredMessage
    from .tree import TreeLine, tree_lines

__all__ = [
    "AnswerPart",
    "AnswerRecipe",
    "AnswerSettings",
    "ChatError",
    "ChatSession",
    "ChatStore",
    "ContextFullError",
    "ContextUse",
    "Conversation",
    "ConversationSummary",
    "ReasoningSplitter",
    "ReplayError",
    "SearchHit",
    "StoreError",
    "StoreWriteError",
    "StoredAnswer",
    "StoredMessage",
    "TreeLine",
    "jsonl_of",
    "keep_prompt_cache",
    "markdown_of",
    "store_path",
    "take_up_prompt_cache",
    "tree_lines",
    "visible_text",
]

__getattr__ = lazy_exports(__name__)

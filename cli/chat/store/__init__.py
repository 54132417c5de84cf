"""The chat store: one SQLite file with all conversations of a user. Knows nothing of models or terminals."""

from .chat_store import ChatStore
from .copying import copy_conversation
from .errors import StoreError, StoreWriteError
from .growing_answer import GrowingAnswer, discard_growing, finish_abandoned
from .location import store_path
from .records import AnswerRecipe, ConversationSummary, Role, SearchHit, StoredAnswer, StoredMessage, message_hash

__all__ = [
    "AnswerRecipe",
    "ChatStore",
    "ConversationSummary",
    "GrowingAnswer",
    "Role",
    "SearchHit",
    "StoreError",
    "StoreWriteError",
    "StoredAnswer",
    "StoredMessage",
    "copy_conversation",
    "discard_growing",
    "finish_abandoned",
    "message_hash",
    "store_path",
]

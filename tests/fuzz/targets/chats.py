"""What `gen chat` keeps: its store, and prompt caches."""

from __future__ import annotations

from functools import cache

from logitsmith.chats.conversation import Conversation, tree_lines
from logitsmith.chats.records import AnswerRecipe, Changes, StoredAnswer, StoredMessage, StoreError
from logitsmith.chats.store import ChatStore
from logitsmith.engine import Model, PromptCacheError, load_prompt_cache, locate, save_prompt_cache

from ..target import Target
from .files import file, folder


def stored(data: bytes) -> None:
    """A store: all conversations are listed, searched and resumed, and their answers read."""
    for suffix in ("-wal", "-shm"):
        (folder() / f"chats.db{suffix}").unlink(missing_ok=True)
    store = ChatStore.open(file("chats.db", data))
    try:
        store.search("the sea")
        for summary in store.list_conversations():
            conversation = Conversation.resume(store, summary.id, str)
            assert len(list(tree_lines(conversation))) <= len(conversation.all_messages())
            for message in conversation.messages():
                conversation.answer_record(message)
            conversation.add_user_message("and on")
    finally:
        store.close()


def _store() -> bytes:
    """A small store, with a branch, an answer, and one that was cut off."""
    path = folder() / "seed.db"
    store = ChatStore.open(path)
    conversation = Conversation.new(store, str)
    conversation.set_system("Be brief.")
    question = conversation.add_user_message("What is the sea?")
    recipe = AnswerRecipe(model={"name": "m"}, chain=[{"dist": {}}], seed=1)
    message, result = StoredMessage.new(question.hash, "assistant", "Water"), {"finish_reason": "stop"}
    answers = {
        1: StoredAnswer(1, message.hash, question.hash, recipe, (1, 2, 3), "", "Water", (4, 5), result),
        2: StoredAnswer(2, None, question.hash, recipe, (1,), "", "Wat", (4,), None),
    }
    conversation.undo()
    conversation.add_user_message("What is the sea, then?")
    store.save(str(conversation.id), Changes({message.hash: message}, answers))
    store.close()
    return path.read_bytes()


@cache
def _model() -> Model:
    return Model.load(locate()[0], n_ctx=64, threads=1)


def prompt_cache(data: bytes) -> None:
    """A prompt cache, which is taken up only as it was written."""
    assert load_prompt_cache(_model(), file("cache", data)) == len(_model().context.tokens)


def _prompt_cache() -> bytes:
    _model().context.read([5, 6, 7], exact=True)
    save_prompt_cache(_model(), folder() / "seed.cache")
    return (folder() / "seed.cache").read_bytes()


_CACHE = _prompt_cache()

TARGETS = (
    Target(
        "chat stores",
        stored,
        (StoreError,),
        [_store()],
        [b"\0" * 4, b"\xff" * 8, b"user", b"assistant", b'{"model"', b"SQLite format 3\0"],
        is_text=False,
    ),
    Target(
        "prompt caches",
        prompt_cache,
        (PromptCacheError,),
        [_CACHE[:3000], _CACHE],
        [b'"tokens": ', b'"bytes": ', b'"sha256": ', b"-1", b"1e9", b"null"],
        is_text=False,
    ),
)

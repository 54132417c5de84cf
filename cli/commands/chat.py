"""`gen chat`: talk with a model, and list, search or delete stored chats."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from ..chat.settings import ConversationOptions
from ..command_options import takes_options
from ..inputs.model import find_draft_model, load_model, open_draft_model, show_llama_cpp_messages
from ..inputs.settings import ChatTemplateFlags
from ..interrupt import interruptible
from ..messages import print_note
from ..render.table import Column, print_table
from ..text import terminal_safe

if TYPE_CHECKING:
    from ...chats.conversation import Conversation
    from ...chats.records import ConversationSummary, SearchHit
    from ...chats.store import ChatStore
    from ...engine.drafts import DraftOptions
    from ...engine.model import Model
    from ..chat.chat import Chat


@takes_options(ConversationOptions)
def chat(options: ConversationOptions) -> None:
    """Talk with a model: change settings, go back, branch, and see how tokens were chosen.

    In the chat, /help lists the commands, and Ctrl-D leaves. If stdin is a pipe, each line is a message, and the
    answers are plain text.

      gen chat --system "Answer in one sentence."
      gen chat --resume
      printf 'Hello\\nAnd again\\n' | gen chat --no-log
    """
    from ...chats.store import ChatStore

    if not options.store.needs_model:
        store = ChatStore.open()
        try:
            _look_up(store, options)
        finally:
            store.close()
        return
    from ...chats.session import ChatSession
    from ..chat.loop import open_chat, terminal_mode
    from ..chat.settings import ChatSettings

    show_llama_cpp_messages(options.log)
    ChatTemplateFlags(options.template)  # an error in a template is reported before the model is loaded
    store = ChatStore.in_memory() if options.store.no_log else ChatStore.open()
    try:
        conversation = _open_conversation(store, options)
        stored = conversation.settings
        settings = None if ChatSettings.needs_model(options) else ChatSettings(options, None, stored)
        draft = _find_draft_model(options)
        with terminal_mode(), _load(options, draft) as model:
            settings = settings or ChatSettings(options, model.metadata, stored)
            settings.draft = draft
            open_draft_model(draft, model)
            session = ChatSession(
                model, conversation, print_note, settings.open_template(model), options.on_full.value
            )
            session.use_story(settings.settings.story)
            code = _talk(open_chat(session, settings, store.path), options)
    finally:
        store.close()
    raise typer.Exit(code)


def _look_up(store: ChatStore, options: ConversationOptions) -> None:
    if options.store.list_chats:
        _show_chats(store.list_conversations())
    elif options.store.search is not None:
        _show_hits(store.search(options.store.search))
    elif options.store.delete is not None:
        summary = store.find_conversation(options.store.delete)
        store.delete(summary.id)
        print_note(f"chat {summary.id} is deleted: {summary.name or summary.title}")


def _show_chats(chats: Sequence[ConversationSummary]) -> None:
    """Print a table of chats, the most recently used first."""
    if not chats:
        print("no chats are stored")
        return
    rows = [
        (
            each.id,
            _local_time(each.updated),
            str(each.message_count),
            _safe(each.name or each.title),
            _safe(each.model or "-"),
        )
        for each in chats
    ]
    title = Column("name, or how it begins", is_text=True)
    print_table(["chat", "last used", "messages", title, Column("model", is_optional=True)], rows)


def _show_hits(hits: Sequence[SearchHit]) -> None:
    from ...chats.records import SPEAKERS

    if not hits:
        print("no message has this")
        return
    rows = [
        (hit.conversation.id, hit.message.hash[:8], SPEAKERS[hit.message.role], _safe(hit.excerpt)) for hit in hits
    ]
    print_table(["chat", "message", "by", Column("place", is_text=True)], rows)


def _local_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as local time, such as ``2026-03-01 14:05``."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def _safe(text: str) -> str:
    return terminal_safe(text, sys.stdout)


def _open_conversation(store: ChatStore, options: ConversationOptions) -> Conversation:
    """Return the conversation that ``--resume`` names, or a new one."""
    from ...chats.conversation import Conversation

    if options.store.resume is None:
        return Conversation.new(store, print_note)
    name_or_id = options.store.resume or None  # None: the latest conversation
    return Conversation.resume(store, store.find_conversation(name_or_id).id, print_note)


def _load(options: ConversationOptions, draft: DraftOptions | None) -> Model:
    """Load the model. Only loading is interruptible here; later each answer handles Ctrl-C separately."""
    with interruptible() as interrupt:
        return load_model(options.model, interrupt, draft=draft)


def _find_draft_model(options: ConversationOptions) -> DraftOptions | None:
    """Return the draft model that ``-md`` names; a download is interruptible."""
    with interruptible() as interrupt:
        return find_draft_model(options.drafts, interrupt)


def _talk(chat: Chat, options: ConversationOptions) -> int:
    from ...chats.session import load_prompt_cache_file, save_prompt_cache_file
    from ..chat.loop import run_loop

    system = chat.settings.settings["system"]
    if chat.conversation.id is None or system.origin.startswith("--"):
        chat.conversation.set_system(system.value)
    chat.save_settings()
    if options.prompt_cache is not None:
        load_prompt_cache_file(chat.session.model, options.prompt_cache, print_note)
    chat.greet()
    try:
        return run_loop(chat)
    finally:
        try:
            chat.conversation.save_before_exit()
        finally:
            if options.prompt_cache is not None:
                save_prompt_cache_file(chat.session.model, options.prompt_cache, print_note)

"""A conversation that does not fit into the context: a warning, an error, or turns that are left out."""

import pytest
from logitsmith.chats.prompt import ContextUsage, context_warning, fit_messages, reserved_answer_tokens
from logitsmith.chats.records import ContextFullError, StoredMessage
from logitsmith.chats.session import ChatSession

from .conftest import ids, settings
from .test_session import ENDLESS, check, cold_tokens


def message(role, length):
    return StoredMessage("", None, role, "x" * length, 0.0)


def chat(text):
    """Return messages of ten tokens: ``s`` of the system, ``u`` of the user, ``a`` of the assistant."""
    return [message({"s": "system", "u": "user", "a": "assistant"}[role], 10) for role in text]


def shown(messages):
    return "".join(message.role[0] for message in messages)


FITS = {
    "all of it": ("suauau", 61, 0, "suauau", 0),
    "one turn": ("suauau", 60, 0, "suau", 2),
    "two turns": ("suauau", 54, 0, "su", 4),
    "without a system message": ("uauau", 50, 0, "uau", 2),
    "what was left out stays so": ("suauau", 100, 2, "suau", 2),
    "and needs no more room": ("suauau", 41, 2, "suau", 2),
    "and more": ("suauau", 40, 2, "su", 4),
    "a turn of two answers": ("suaauau", 70, 0, "suau", 3),
    "the last turn": ("suau", 21, 0, "su", 2),
}


@pytest.mark.parametrize(("text", "length", "dropped", "kept", "count"), FITS.values(), ids=FITS)
def test_what_fits(text, length, dropped, kept, count):
    messages = chat(text)
    fitted = fit_messages(messages, lambda messages: 10 * len(messages), length, 15, dropped)
    assert (shown(fitted.messages), fitted.dropped_message_count) == (kept, count)
    assert fitted.messages[-1] is messages[-1]


def test_a_turn_that_does_not_fit_at_all():
    with pytest.raises(ContextFullError, match=r"the prompt has 20 tokens, and the context holds 20; shorten it"):
        fit_messages(chat("suau"), lambda messages: 10 * len(messages), 20, 5, 0)


def test_reserved_tokens_and_warning():
    assert [reserved_answer_tokens(4096, limit) for limit in (None, 100, 5000, 0)] == [1024, 100, 1024, 1]
    assert context_warning(ContextUsage(70, 100), False) is None
    assert context_warning(ContextUsage(3000, 4000), False) is not None
    assert "--on-full drop leaves out the oldest turns" in context_warning(ContextUsage(3000, 4000), False)
    assert "the oldest turns are left out" in context_warning(ContextUsage(3000, 4000), True)
    full = "the context is full: the chat has 4,000 tokens, and the context holds 4,000; "
    assert context_warning(ContextUsage(4000, 4000), False).startswith(f"{full}go back with /undo or /goto")
    assert (
        context_warning(ContextUsage(4000, 4000), True)
        == f"{full}the oldest turns are left out of the next prompt"
    )


def test_stop(session, conversation, notes):
    conversation.add_user_message("x" * 300)
    assert session.warning() is None
    list(session.answer(settings()))
    conversation.add_user_message("y" * 90)
    assert session.warning().startswith("the chat has ")
    list(session.answer(settings(chain=ENDLESS, max_tokens=None)))
    assert notes == []
    assert conversation.answer_record(conversation.current_message).result["finish_reason"] == "context"
    question = conversation.add_user_message("z")
    with pytest.raises(ContextFullError, match=r"the chat has [\d,]+ tokens, and the context holds 512; go back"):
        session.answer(settings())
    assert conversation.current_message == question, "the message is stored nevertheless"
    conversation.undo()
    conversation.undo()
    conversation.add_user_message("z")
    assert ids(session.answer(settings()))


def test_drop(model, conversation, notes, cold_model, store):
    session = ChatSession(model, conversation, notes.append, on_full="drop")
    conversation.set_system("Be brief.")
    for text in ("a", "b", "c", "d"):
        conversation.add_user_message(text * 100)
        list(session.answer(settings(chain=ENDLESS, max_tokens=20)))
    dropped = session.dropped_message_count
    assert (dropped, len(notes)) == (2, 1)
    assert notes[0] == "the context is full: the oldest 2 messages after the system message are left out now"
    assert session.usage().token_count < 512
    messages = conversation.messages()
    expected = cold_tokens(cold_model, [messages[0], *messages[3:-1]], settings(chain=ENDLESS, max_tokens=20))
    assert list(conversation.answer_record(messages[-1]).token_ids) == expected
    again = ChatSession(model, conversation, notes.append, on_full="drop")
    again.conversation.add_user_message("e")
    list(again.answer(settings(max_tokens=5)))
    assert (again.dropped_message_count, len(notes)) == (2, 1), (
        "left-out messages stay left out, also in a later session"
    )
    conversation.goto(messages[2].hash)
    conversation.add_user_message("f")
    check(again.answer(settings()), conversation, cold_model, settings())
    assert again.dropped_message_count == 0, "an earlier place has its messages again"

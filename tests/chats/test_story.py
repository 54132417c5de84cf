"""The memory, the author's note and the world info of a chat."""

import pytest
from logitsmith.chats.records import ContextFullError
from logitsmith.presets import Preset
from logitsmith.presets.settings import resolve_settings

from .conftest import ids, settings

STORY = {"memory": "Sea.", "authors_note": "sad", "world_info": [{"keys": ["lamp"], "content": "Oil."}]}


def story(fields):
    return resolve_settings(Preset.from_table(fields)).story


def prompt_of(session):
    return b"".join(map(session.model.vocabulary.piece, session.prompt_ids_to_continue(""))).decode()


def test_the_story_is_in_each_prompt(session, conversation):
    conversation.set_system("Be brief.")
    conversation.add_user_message("Hello")
    session.use_story(story(STORY))
    assert prompt_of(session).endswith("[system]Sea.\nBe brief.\n[user][Author's note: sad]\n\nHello\n[assistant]")
    answer = ids(session.answer(settings()))
    assert answer == list(conversation.answer_record(conversation.current_message).token_ids)
    conversation.add_user_message("The lamp?")
    assert "[system]Sea.\nOil.\nBe brief.\n[user]" in prompt_of(session)
    session.use_template(None)
    assert "Sea." in prompt_of(session)
    session.use_story(story({"memory": ""}))
    assert "Sea." not in prompt_of(session)
    assert "Be brief." in prompt_of(session)


def test_a_long_memory_leaves_room(session, conversation):
    session.use_story(story({"memory": "word. " * 500}))
    conversation.add_user_message("Hello")
    assert session.usage().token_count < 512
    session.check_message("Short", None, None)
    with pytest.raises(ContextFullError):
        session.check_message("more " * 500, None, None)

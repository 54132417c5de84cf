"""The chat store: conversations, messages, search, and deletion."""

import pytest
from logitsmith.chats.conversation import Conversation, tree_lines
from logitsmith.chats.records import StoreError, compute_message_hash


def talk(store, notes, *texts):
    """Return a conversation in which the user and the assistant alternate."""
    conversation = Conversation.new(store, report=notes.append)
    for number, text in enumerate(texts):
        (conversation.add_answer_version if number % 2 else conversation.add_user_message)(text)
    return conversation


def contents(messages):
    return [message.content for message in messages]


def test_nothing_is_stored_before_the_first_message(store, notes):
    conversation = Conversation.new(store, report=notes.append)
    conversation.set_system("Be brief.")
    conversation.rename("tea")
    conversation.save_settings({"seed": 1})
    assert (conversation.id, conversation.name, store.list_conversations()) == (None, "tea", [])
    conversation.add_user_message("Hello")
    again = Conversation.resume(store, store.find_conversation("tea").id, notes.append)
    assert (again.system, again.settings, contents(again.messages())) == (
        "Be brief.", {"seed": 1}, ["Be brief.", "Hello"],
    )  # fmt: skip


def test_a_messages_hash_depends_on_the_messages_before_it(store, notes):
    first, second = (talk(store, notes, "Hello", "Hi") for _ in range(2))
    assert first.id != second.id
    assert first.messages() == second.messages()
    assert first.current_message.hash == compute_message_hash(
        compute_message_hash(None, "user", "Hello"), "assistant", "Hi"
    )
    assert store.database.rows("SELECT count(*) FROM message") == [(2,)]
    store.delete(first.id)
    assert contents(second.messages()) == ["Hello", "Hi"]
    store.delete(second.id)
    assert store.database.rows("SELECT count(*) FROM message") == [(0,)]


def test_branches_share_their_beginning(store, notes):
    conversation = talk(store, notes, "a", "b", "c", "d")
    undone = conversation.undo()
    assert (undone.content, conversation.current_message.content) == ("c", "b")
    other = conversation.add_user_message("C")
    conversation.add_answer_version("D")
    assert contents(conversation.messages()) == ["a", "b", "C", "D"]
    assert contents(conversation.siblings(other)) == ["c", "C"]
    assert contents(conversation.children(conversation.goto(other.parent_hash))) == ["c", "C"]
    conversation.goto(undone.hash[:10])
    lines = [
        (
            line.message.content,
            line.depth,
            line.is_on_path,
            line.is_current,
        )
        for line in tree_lines(conversation)
    ]
    assert lines == [
        ("a", 0, True, False),
        ("b", 0, True, False),
        ("c", 1, True, True),
        ("d", 1, False, False),
        ("C", 1, False, False),
        ("D", 1, False, False),
    ]


def test_another_system_message_begins_another_branch(store, notes):
    conversation = talk(store, notes, "a", "b")
    conversation.set_system("Be kind.")
    assert contents(conversation.messages()) == ["Be kind.", "a", "b"]
    conversation.set_system(None)
    assert (contents(conversation.messages()), conversation.system) == (["a", "b"], None)
    assert len(conversation.all_messages()) == 5
    conversation.goto(None)
    conversation.set_system("Be kind.")
    assert contents([conversation.add_user_message("x"), *conversation.messages()]) == ["x", "Be kind.", "x"]


def test_two_sessions_in_one_conversation_do_not_move_each_other(store, notes):
    first = talk(store, notes, "a", "b")
    second = Conversation.resume(store, first.id, notes.append)
    second.add_user_message("c2")
    first.add_user_message("c1")
    second.add_answer_version("d2")
    assert contents(first.messages()) == ["a", "b", "c1"]
    assert contents(second.messages()) == ["a", "b", "c2", "d2"]
    assert contents(first.siblings(first.current_message)) == ["c1"], (
        "the messages of the other session are seen later"
    )
    again = Conversation.resume(store, first.id, notes.append)
    assert contents(again.messages()) == ["a", "b", "c2", "d2"]
    assert contents(again.siblings(first.current_message)) == ["c2", "c1"]


SEARCHES = {
    "a part of a word": ("ombatic", {"A wombatical day"}),
    "whatever the case": ("WOMBAT day", {"A wombatical day"}),
    "two letters": ("zu", {"Zu Hause 100%"}),
    "no pattern": ("0%", {"Zu Hause 100%"}),
    "quotes": ('say "hi"', {'They say "hi"'}),
    "Chinese": ("今天天", {"今天天气很好"}),
    "one Chinese character": ("好", {"今天天气很好"}),
    "nothing": ("nonsuch", set()),
}


@pytest.mark.parametrize(("text", "found"), SEARCHES.values(), ids=SEARCHES)
def test_search(store, notes, text, found):
    for content in ("A wombatical day", "Zu Hause 100%", 'They say "hi"', "今天天气很好", "wombat_ 100"):
        talk(store, notes, content)
    assert {hit.message.content for hit in store.search(text)} == found


def test_deleted_text_is_neither_found_nor_in_the_file(store, notes):
    conversation = talk(store, notes, "The secret is xylophone.", "I will not tell.")
    talk(store, notes, "Something else")
    assert store.search("xylophone")
    store.delete(conversation.id)
    assert store.search("xylophone") == []
    files = [file.read_bytes() for file in store.path.parent.iterdir()]
    assert not any(b"xylophone" in data or b"xyl" in data for data in files)
    assert any(b"Something else" in data for data in files)


def test_conversations_are_found_by_name_id_and_prefix(store, notes):
    one, two = talk(store, notes, "one"), talk(store, notes, "two")
    assert [summary.title for summary in store.list_conversations()] == ["two", "one"]
    assert store.find_conversation(one.id[:6]).id == one.id
    assert store.find_conversation().id == two.id
    one.rename("tea")
    assert store.find_conversation("tea").id == one.id
    with pytest.raises(StoreError, match=f"{one.id} has the name 'tea'"):
        two.rename("tea")
    for text in ("x", "nonsuch", ""):
        with pytest.raises(StoreError, match="there is no conversation"):
            store.find_conversation(text)


def test_the_files_are_private(store, notes):
    talk(store, notes, "Hello")
    files = list(store.path.parent.iterdir())
    assert {file.name for file in files} == {"chats.db", "chats.db-wal", "chats.db-shm"}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert store.path.parent.stat().st_mode & 0o777 == 0o700

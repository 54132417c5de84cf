"""What the model reads of a story."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from logitsmith.presets.story import AuthorsNote, Story, WorldInfo, WorldInfoEntry
from logitsmith.requests.story_context import read_messages, read_text, reserved_for_answer


def word_sizes(text):
    """A tokenizer that adds BOS: words with the space before them, and each other character."""
    return [0, *(len(token.encode()) for token in re.findall(r" ?\w+|\W", text))]


def count_words(messages):
    """A chat template that adds four tokens to each message."""
    return sum(len(word_sizes(message["content"])) + 3 for message in messages)


def entry(content="The lamp burns oil.", keys=("lamp",), **fields):
    return WorldInfoEntry(content=content, keys=list(keys), **fields)


def story(*entries, memory="", note=None, **facts):
    return Story(memory, note or AuthorsNote(), WorldInfo(entries=list(entries), **facts))


def read(given_story, text, max_tokens=1_000, **options):
    return read_text(given_story, text, word_sizes, max_tokens, **options)


def kinds_and_texts(context):
    return [(part.kind, part.text) for part in context.parts]


TEXT = "The keeper woke.\nNobody had lit the lamp.\nOdile came.\n"
# Each row: the entry, and why it is not read; None: it is.
MATCHES = {
    "key": (entry(), None),
    "one of several keys": (entry(keys=["ship", "lamp"]), None),
    "another case": (entry(keys=["LAMP"]), None),
    "case": (entry(keys=["LAMP"], case_sensitive=True), "no_key"),
    "no key": (entry(keys=["ship"]), "no_key"),
    "no keys": (entry(keys=[]), "no_key"),
    "an empty key": (entry(keys=[""]), "no_key"),
    "constant": (entry(keys=[], constant=True), None),
    "disabled": (entry(constant=True, enabled=False), "disabled"),
    "empty": (entry(" ", constant=True), "empty"),
    "part of a word": (entry(keys=["keep"]), None),
    "whole word": (entry(keys=["keeper"], whole_words=True), None),
    "no whole word": (entry(keys=["keep"], whole_words=True), "no_key"),
    "whole words": (entry(keys=["lit the lamp"], whole_words=True), None),
    "secondary keys": (entry(secondary_keys=["ship", "Odile"], selective=True), None),
    "no secondary key": (entry(secondary_keys=["ship"], selective=True), "no_secondary_key"),
    "secondary keys that do not count": (entry(secondary_keys=["ship"]), None),
    "no secondary keys": (entry(selective=True), None),
    "excluded": (entry(exclude_keys=["Odile"]), "excluded"),
    "not excluded": (entry(exclude_keys=["ship"]), None),
    "in the last lines": (entry(scan_depth=2), None),
    "before the last lines": (entry(scan_depth=1), "no_key"),
}


@pytest.mark.parametrize(("given_entry", "reason"), MATCHES.values(), ids=MATCHES)
def test_which_entries_are_read(given_entry, reason):
    context = read(story(given_entry), TEXT)
    parts = [("text", TEXT)] if reason else [("world_info", given_entry.content + "\n"), ("text", TEXT)]
    assert kinds_and_texts(context) == parts
    assert [each.reason for each in context.left_out] == ([reason] if reason else [])


def test_what_holds_for_all_entries():
    assert [part.kind for part in read(story(entry(), scan_depth=1), TEXT).parts] == ["text"]
    assert [part.kind for part in read(story(entry(), scan_depth=1), "The lamp").parts] == ["world_info", "text"]
    assert [part.kind for part in read(story(entry(keys=["LAMP"]), case_sensitive=True), TEXT).parts] == ["text"]
    own = story(entry(keys=["LAMP"], case_sensitive=False, scan_depth=0), case_sensitive=True, scan_depth=1)
    assert [part.kind for part in read(own, TEXT).parts] == ["world_info", "text"]


NUMBERED = [
    entry("One.", insertion_order=3),
    entry("Two.", insertion_order=1),
    entry("Three.", insertion_order=2, constant=True),
    entry("Four.", insertion_order=3),
]
# Each row: the budget, the entries in their order, and the rest. An entry has three tokens.
BUDGETS = [
    (None, "Two. Three. One. Four.", ""),
    (12, "Two. Three. One. Four.", ""),
    (11, "Three. One. Four.", "Two."),
    (6, "Three. One.", "Two. Four."),
    (3, "Three.", "One. Two. Four."),
    (0, "", "One. Two. Three. Four."),
]


@pytest.mark.parametrize(("budget", "expected", "rest"), BUDGETS)
def test_order_and_budget(budget, expected, rest):
    context = read(story(*NUMBERED, token_budget=budget), TEXT)
    assert "".join(part.text for part in context.parts[:-1]).split() == expected.split()
    assert [NUMBERED[each.entry].content for each in context.left_out] == rest.split()
    assert {each.reason for each in context.left_out} <= {"budget"}
    assert sum(part.token_count for part in context.parts) == len(word_sizes(context.text))


def note(text="sad", **fields):
    return AuthorsNote(text=text, template="[<|>]", **fields)


# Each row: where the note stands, in lines or characters from the end.
NOTES = {
    "at the end": (note(characters=0), "One two.\nThree four.[sad]"),
    "a word is not cut": (note(characters=8), "One two.\nThree[sad] four."),
    "before the text": (note(), "[sad]One two.\nThree four."),
    "after no line": (note(depth=0), "One two.\nThree four.\n[sad]\n"),
    "before the last line": (note(depth=1), "One two.\n[sad]\nThree four."),
    "before all lines": (note(depth=9), "[sad]\nOne two.\nThree four."),
    "without a text": (AuthorsNote(text=" ", depth=0), "One two.\nThree four."),
    "the usual template": (AuthorsNote(text="sad", characters=0), "One two.\nThree four.[Author's note: sad]"),
}


@pytest.mark.parametrize(("given_note", "expected"), NOTES.values(), ids=NOTES)
def test_the_place_of_the_note(given_note, expected):
    assert read(story(note=given_note), "One two.\nThree four.").text == expected


def test_the_note_is_not_in_the_beginning_of_the_answer():
    given_story = story(note=note(characters=0))
    assert (
        read(given_story, "Is it far? Three tides.", beginning=" Three tides.").text
        == "Is it far?[sad] Three tides."
    )


# Each row: the text, the maximum number of tokens (BOS is one), and what is left.
SHORTENED = [
    ("One two. Three four. Five six.", 99, "One two. Three four. Five six."),
    ("One two. Three four. Five six.", 7, "Three four. Five six."),
    ("One two. Three four. Five six.", 6, "Five six."),
    ("One two\nthree four\nfive six", 7, "three four\nfive six"),
    ("one two three four five six", 4, "four five six"),
    ("One two.\nThree four.", 1, ""),
]


@pytest.mark.parametrize(("text", "max_tokens", "expected"), SHORTENED)
def test_a_long_text_loses_its_beginning(text, max_tokens, expected):
    context = read(story(), text, max_tokens)
    assert context.text == expected
    assert [(each.kind, each.reason) for each in context.left_out] == [("text", "context")] * (text != expected)


def test_the_beginning_of_what_is_read_stays_while_a_text_grows():
    text, prompts = "", []
    for number in range(300):
        text += f"This is sentence {number}. "
        prompts.append(read(story(memory="Sea.", note=note()), text, 400).text[:200])
    changes = sum(before != after for before, after in pairwise(prompts))
    assert changes < 60  # each of them would lose six tokens


def test_a_long_memory_and_note_leave_room_for_the_text():
    words = "word. " * 100
    context = read(story(memory=words, note=note(text=words)), words, 50)
    counts = {part.kind: part.token_count for part in context.parts}
    assert counts["memory"] <= 40
    assert counts["text"] > 0
    assert {each.kind for each in context.left_out} == {"memory", "text", "authors_note"}


texts = st.text(alphabet="ab .\né!", max_size=120)
depths = st.none() | st.integers(0, 5)
entries = st.builds(
    WorldInfoEntry,
    content=texts,
    keys=st.lists(st.text("ab", max_size=2), max_size=2),
    constant=st.booleans(),
    insertion_order=st.integers(-2, 2),
    scan_depth=depths,
)
stories = st.builds(
    Story,
    texts,
    st.builds(AuthorsNote, text=texts, depth=depths, characters=st.integers(0, 60)),
    st.builds(WorldInfo, entries=st.lists(entries, max_size=5), token_budget=st.none() | st.integers(0, 60)),
)
TOKENIZERS = [
    word_sizes,
    lambda text: [len(char.encode()) for char in text],
    lambda text: [1] * len(text.encode()),
]


@given(stories, texts, st.integers(1, 200), st.sampled_from(TOKENIZERS))
def test_all_of_it_fits(given_story, text, max_tokens, sizes):
    context = read_text(given_story, text, sizes, max_tokens)
    assert len(sizes(context.text)) <= max_tokens
    assert sum(part.token_count for part in context.parts) == (len(sizes(context.text)) if context.parts else 0)
    kinds = [part.kind for part in context.parts]
    order = ["memory", "world_info", "text"]
    assert [kind for kind in kinds if kind != "authors_note"] == sorted(
        (kind for kind in kinds if kind != "authors_note"), key=order.index
    )
    assert kinds.count("memory") <= 1
    assert text.endswith("".join(part.text for part in context.parts if part.kind == "text"))
    read_entries = [part.entry for part in context.parts if part.kind == "world_info"]
    left_entries = [each.entry for each in context.left_out if each.kind == "world_info"]
    assert sorted([*read_entries, *left_entries]) == list(range(len(given_story.world_info.entries)))


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}
CHAT = [user("One"), assistant("Two"), user("Three lamp")]
# Each row: the story, the chat, and what the chat template gets.
CHATS = {
    "memory": (story(memory="Sea."), CHAT, [{"role": "system", "content": "Sea."}, *CHAT]),
    "memory and system message": (
        story(entry(), memory="Sea."),
        [SYSTEM, *CHAT],
        [{"role": "system", "content": "Sea.\nThe lamp burns oil.\nBe brief."}, *CHAT],
    ),
    "nothing": (story(), [SYSTEM, *CHAT], [SYSTEM, *CHAT]),
    "note at the end": (story(note=note(depth=0)), CHAT, [*CHAT[:2], user("Three lamp\n\n[sad]")]),
    "note before a message": (story(note=note(depth=1)), CHAT, [*CHAT[:2], user("[sad]\n\nThree lamp")]),
    "note after a message": (story(note=note(depth=2)), CHAT, [user("One\n\n[sad]"), *CHAT[1:]]),
    "note before all": (story(note=note()), CHAT, [user("[sad]\n\nOne"), *CHAT[1:]]),
    "characters": (story(note=note(characters=5)), CHAT, [*CHAT[:2], user("[sad]\n\nThree lamp")]),
    "no message of the user": (
        story(note=note(depth=0)),
        CHAT[:2],
        [*CHAT[:2], {"role": "system", "content": "[sad]"}],
    ),
    "parts": (story(note=note(depth=0)), [user([{"type": "text", "text": "Hi"}])], [user("Hi\n\n[sad]")]),
}


@pytest.mark.parametrize(("given_story", "messages", "expected"), CHATS.values(), ids=CHATS)
def test_a_story_in_a_chat(given_story, messages, expected):
    context = read_messages(given_story, messages, word_sizes, 500, count_words_of_parts)
    assert list(context.messages) == expected
    assert context.left_out == ()


def count_words_of_parts(messages):
    return count_words([message for message in messages if isinstance(message["content"], str)])


turns = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts.filter(bool)), min_size=1, max_size=8)


@given(stories, turns, st.integers(20, 300))
def test_the_last_messages_of_a_chat_fit(given_story, turns, max_tokens):
    messages = [{"role": role, "content": text} for role, text in turns]
    context = read_messages(given_story, messages, word_sizes, max_tokens, count_words)
    last_turn = max((index for index, (role, _) in enumerate(turns) if role == "user"), default=0)
    fits_alone = count_words(messages[last_turn:]) <= max_tokens
    assert count_words(context.messages) <= max_tokens or not fits_alone
    if context.parts[0].kind == "memory":
        assert context.messages[0]["content"].startswith(context.parts[0].text.rstrip("\n"))


@pytest.mark.parametrize(
    ("context_length", "max_tokens", "expected"),
    [(4096, 80, 80), (4096, 4096, 2048), (4096, None, 1024), (4096, -1, 1024), (4096, 0, 1), (1, 1, 1)],
)
def test_room_for_the_answer(context_length, max_tokens, expected):
    assert reserved_for_answer(context_length, max_tokens) == expected

"""The smaller parts of a chat: reasoning, export, and the tree of a long conversation."""

import json

import pytest
from logitsmith.chats.conversation import Conversation, tree_lines
from logitsmith.chats.prompt import jsonl_of, markdown_of
from logitsmith.chats.records import Changes, StoredMessage, pack_tokens, unpack_tokens
from logitsmith.chats.session import ChatSession
from logitsmith.engine import ReasoningTags
from logitsmith.engine.jinja_template import JinjaChatTemplate
from logitsmith.requests.lines import read_request_line

from .conftest import settings

CHANNELS = ReasoningTags(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    ("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
)
HARMONY = "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>because"


def test_a_template_gets_the_reasoning_apart(session, conversation):
    source = (
        "{% for m in messages %}{% if '<|channel|>' in m.content %}{{ raise_exception('channels') }}{% endif %}"
        "<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"
        "{# <|channel|>analysis<|message|> #}"
    )
    session = ChatSession(session.model, conversation, pytest.fail, JinjaChatTemplate(source))
    assert session.template.reasoning_tags == CHANNELS
    conversation.add_user_message("Hi")
    conversation.add_answer_version(HARMONY)
    conversation.add_user_message("Why?")
    record = list(session.answer(settings(max_tokens=2)))
    prompt = b"".join(map(session.model.vocabulary.piece, record[0].prompt_ids)).decode()
    assert "<|start|>assistant<|message|>because<|end|><|start|>user<|message|>Why?" in prompt
    answer = json.loads(jsonl_of(conversation.messages(), session.template))["messages"][1]
    assert answer == {"role": "assistant", "content": "because", "reasoning_content": "why"}


def test_export(conversation, session):
    conversation.set_system("Be brief.")
    conversation.add_user_message('Say "hi" 今天\n\nplease')
    conversation.add_answer_version("hi\n")
    conversation.add_user_message("Thanks")
    messages = conversation.messages()
    assert markdown_of(messages, session.template) == (
        '## System\n\nBe brief.\n\n## User\n\nSay "hi" 今天\n\nplease\n\n## Assistant\n\nhi\n\n## User\n\nThanks\n'
    )
    line = jsonl_of(messages, session.template)
    assert line.count("\n") == 1
    request = read_request_line(json.loads(line), 1)
    assert request.asked.messages == [{"role": m.role, "content": m.content} for m in messages]


# Each row: an answer, and its section in Markdown
ANSWERS = {
    "a thought": ("<think>\nwhy\n\nnot?</think>\n\nso", "> why\n>\n> not?\n\nso\n"),
    "an empty thought": ("<think>\n\n</think>\n\nso", "so\n"),
    "a thought that is cut off": ("<think>\nwhy", "> why\n"),
    "no thought": ("so", "so\n"),
}


@pytest.mark.parametrize(("text", "section"), ANSWERS.values(), ids=ANSWERS)
def test_markdown_quotes_the_reasoning(conversation, text, section):
    template = JinjaChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}{# <think></think> #}")
    conversation.add_user_message("Hi")
    conversation.add_answer_version(text)
    assert markdown_of(conversation.messages(), template) == f"## User\n\nHi\n\n## Assistant\n\n{section}"


THOUGHT = [("reasoning", "why"), ("answer", "so")]


OPENING = JinjaChatTemplate(
    "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
    "{% if add_generation_prompt %}<think>\n{% endif %}"
)
PARTS = {  # whether the prompt opens the reasoning, the text of an answer, its parts
    "no reasoning": (False, "A tag.", [("answer", "A tag.")]),
    "an end tag in an answer": (False, "why</think>so", [("answer", "why</think>so")]),
    "its own tags": (False, "<think>why</think>so", THOUGHT),
    "opened": (True, "why</think>so", THOUGHT),
    "opened again by a person": (True, "<think>\nwhy</think>so", THOUGHT),
    "an answer of a person": (True, "so", [("answer", "so")]),
}


@pytest.mark.parametrize(("is_opened", "text", "expected"), PARTS.values(), ids=PARTS)
def test_the_parts_of_an_answer_depend_on_the_template(session, conversation, is_opened, text, expected):
    if is_opened:
        session.template = OPENING
    conversation.add_user_message("What are <think> and </think>?")
    conversation.add_answer_version(text)
    assert session.parts_of(conversation.current_message) == expected
    assert session.parts_of_beginning(text) == expected


EDITED = {  # what is edited, and the end of the prompt that continues it
    "a thought": ("<think>\nwhy", "<think>\nwhy"),
    "a thought and an answer": ("<think>\nwhy</think>so", "<think>\nwhy</think>so"),
    "an answer": ("so", "<think></think>so"),
}


@pytest.mark.parametrize(("text", "ending"), EDITED.values(), ids=EDITED)
def test_an_edited_answer_is_continued_as_thought_or_as_answer(model, conversation, text, ending):
    session = ChatSession(model, conversation, pytest.fail, OPENING)
    conversation.add_user_message("Hi")
    answer = list(session.answer(settings(seed=4, max_tokens=12)))[-1]
    drawn = conversation.current_message
    assert session.parts_of(drawn) == [("reasoning", answer.reasoning)]
    assert session.editable_text(drawn) == "<think>\n" + drawn.content
    start = next(iter(session.continue_from(text, settings(max_tokens=3))))
    assert b"".join(map(model.vocabulary.piece, start.prompt_ids)).decode().endswith("Hi" + ending)
    conversation.add_answer_version(text)
    assert session.editable_text(conversation.current_message) == text


def test_a_long_conversation(store, notes):
    messages, parent = {}, None
    for number in range(3000):
        message = StoredMessage.new(parent, "user", str(number))
        messages[message.hash], parent = message, message.hash
    store.save("c0ffee", Changes(messages, fields={"created": 1.0, "current_message": parent}))
    conversation = Conversation.resume(store, "c0ffee", notes.append)
    assert [message.content for message in conversation.messages()] == list(map(str, range(3000)))
    assert [line.message.content for line in tree_lines(conversation)][-1] == "2999"


def test_text_that_is_not_utf8_is_stored_with_a_replacement(conversation):
    message = conversation.add_user_message("a\udcffb\0c")
    assert message.content == "a\ufffdb\0c"
    assert conversation.messages() == [message]


def test_token_ids_are_packed():
    ids = (0, 5, 262_143, 2**31 - 1)
    assert unpack_tokens(pack_tokens(ids)) == ids
    assert unpack_tokens(pack_tokens(())) == ()
    with pytest.raises(ValueError, match="Error -5"):
        unpack_tokens(b"x")

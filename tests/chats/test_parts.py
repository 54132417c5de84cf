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


def test_a_template_that_rejects_reasoning_gets_none(session, conversation):
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
    assert answer == {"role": "assistant", "content": "because"}


def test_export(conversation, session):
    conversation.set_system("Be brief.")
    conversation.add_user_message('Say "hi" 今天\n\nplease')
    conversation.add_answer_version("hi\n")
    conversation.add_user_message("Thanks")
    messages = conversation.messages()
    assert markdown_of(messages) == (
        '## System\n\nBe brief.\n\n## User\n\nSay "hi" 今天\n\nplease\n\n## Assistant\n\nhi\n\n## User\n\nThanks\n'
    )
    line = jsonl_of(messages, session.template)
    assert line.count("\n") == 1
    request = read_request_line(json.loads(line), 1)
    assert request.asked.messages == [{"role": m.role, "content": m.content} for m in messages]


THOUGHT = [("reasoning", "why"), ("answer", "so")]


def test_the_parts_of_an_answer_depend_on_the_prompt(session, conversation):
    conversation.add_user_message("Hello")
    assert session.parts_of("why</think>so") == [("answer", "why</think>so")]
    session.template = JinjaChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}<think>{# </think> #}")
    assert session.parts_of("why</think>so") == THOUGHT


def test_tags_in_a_message_of_the_user_are_ignored(session, conversation):
    conversation.add_user_message("What is <think>?")
    assert session.parts_of("A tag.") == [("answer", "A tag.")]
    conversation.add_answer_version("A tag.")
    assert session.parts_of("A tag.") == [("answer", "A tag.")]
    session.template = JinjaChatTemplate(
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
        "{% if add_generation_prompt %}<think>{% endif %}"
    )
    conversation.add_user_message("And </think>?")
    assert session.parts_of("why</think>so") == THOUGHT


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

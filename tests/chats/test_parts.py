"""The smaller parts of a chat: reasoning, export, and the tree of a long conversation."""

import json

import pytest
from logitsmith.chats.conversation import Conversation, tree_lines
from logitsmith.chats.prompt import ReasoningSplitter, jsonl_of, markdown_of
from logitsmith.chats.records import Changes, StoredMessage, pack_tokens, unpack_tokens
from logitsmith.chats.session import ChatSession, visible_text
from logitsmith.engine import ReasoningTags, Token
from logitsmith.engine.jinja_template import JinjaChatTemplate
from logitsmith.requests.lines import read_request_line

from .conftest import settings

TAGS = ReasoningTags("<think>", "</think>")

SPLITS = {
    "no tags": (None, "", "a <think> b", [("a <think> b", False)]),
    "no reasoning": (TAGS, "", "plain", [("plain", False)]),
    "reasoning first": (TAGS, "", "<think>why</think>because", [("why", True), ("because", False)]),
    "in the middle": (TAGS, "", "a<think>b</think>c", [("a", False), ("b", True), ("c", False)]),
    "begun in the prompt": (TAGS, "[assistant]<think>", "why</think>so", [("why", True), ("so", False)]),
    "ended in the prompt": (TAGS, "<think>\n\n</think>", "so", [("so", False)]),
    "never ended": (TAGS, "", "<think>why</thin", [("why</thin", True)]),
    "nearly a tag": (TAGS, "", "1 <thin> 2 <", [("1 <thin> 2 <", False)]),
    "twice": (TAGS, "", "<think>a</think>b<think>c</think>", [("a", True), ("b", False), ("c", True)]),
}


CHANNELS = ReasoningTags(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    ("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
)
HARMONY = "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>because"
SPLITS |= {
    "channels": (CHANNELS, "<|start|>assistant", HARMONY, [("why", True), ("because", False)]),
    "one channel": (CHANNELS, "<|start|>assistant", "<|channel|>final<|message|>so", [("so", False)]),
}


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
    pieces = (b"<|channel|>", b"<|message|>", b"<|start|>", b"<|end|>", b"<|return|>")
    shown = [visible_text(Token(0, 5, piece, "", True), session.template) for piece in pieces]
    assert shown == ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", ""]


def joined(parts):
    """Join adjacent parts of the same kind."""
    result = []
    for text, is_reasoning in parts:
        if result and result[-1][1] == is_reasoning:
            result[-1] = (result[-1][0] + text, is_reasoning)
        else:
            result.append((text, is_reasoning))
    return result


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize(("tags", "prompt", "text", "parts"), SPLITS.values(), ids=SPLITS)
def test_reasoning(tags, prompt, text, parts, step):
    splitter = ReasoningSplitter(tags, prompt)
    found = [part for start in range(0, len(text), step) for part in splitter.append(text[start : start + step])]
    assert joined([*found, *splitter.finish()]) == parts


def test_tags_that_are_control_tokens_are_part_of_the_text():
    template = JinjaChatTemplate("{{ messages }}{# <think></think> #}")
    assert visible_text(Token(0, 5, b"<think>", "", True), template) == "<think>"
    assert visible_text(Token(0, 6, b"<|end|>", "", True), template) == ""
    assert visible_text(Token(0, 7, b"a", "a", False), template) == "a"
    assert visible_text(Token(0, 5, b"<think>", "", True), JinjaChatTemplate("{{ messages }}")) == ""


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


def test_the_splitter_of_a_session_knows_the_prompt(session, conversation):
    conversation.add_user_message("Hello")
    assert list(session.new_reasoning_splitter().append("why</think>so")) == [("why</think>so", False)]
    session.template = JinjaChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}<think>{# </think> #}")
    assert list(session.new_reasoning_splitter().append("why</think>so")) == [("why", True), ("so", False)]
    assert list(session.new_reasoning_splitter("because</think>").append("so")) == [("so", False)]


def test_tags_in_a_message_of_the_user_are_ignored(session, conversation):
    conversation.add_user_message("What is <think>?")
    assert list(session.new_reasoning_splitter().append("A tag.")) == [("A tag.", False)]
    conversation.add_answer_version("A tag.")
    assert list(session.new_reasoning_splitter().append("A tag.")) == [("A tag.", False)]
    session.template = JinjaChatTemplate(
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
        "{% if add_generation_prompt %}<think>{% endif %}"
    )
    conversation.add_user_message("And </think>?")
    assert list(session.new_reasoning_splitter().append("why</think>so")) == [("why", True), ("so", False)]


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

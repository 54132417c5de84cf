"""Where a chat template writes the reasoning of an answer, and what it writes around it."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..logprobs.events import ReasoningTags
from ..models.errors import ModelError
from .chat_template import (
    ANSWER_MARK,
    LAST_TAG,
    REASONING_TAGS,
    TAG,
    ChatTemplate,
    ReasoningFormat,
    common_beginning,
)

USER_MARK = "UserMark"
REASONING_MARK = "ReasoningMark"
_FIRST_TAG = re.compile(TAG)

# Formats that templates do not show, by words of these templates, as in llama.cpp
_KNOWN_FORMATS = {
    "<parameter=": ReasoningFormat("<think>\n", "\n</think>\n\n"),  # the tool calls of Qwen, Nemotron 3, StepFun
    "<SPECIAL_12>": ReasoningFormat("<think>\n", "</think>"),  # Nemotron Nano 2
    "<|channel>thought": ReasoningFormat("<|channel>thought\n", "<channel|>"),  # Gemma 4
    "dsml_token + 'tool_calls": ReasoningFormat(
        "<think>", "</think>", without_reasoning="</think>"
    ),  # DeepSeek V4
}


def find_reasoning_format(template: ChatTemplate, source: str) -> ReasoningFormat | None:
    """Return how a template writes reasoning; None if it has none. ``template`` has no variables."""
    shown_format = _shown_format(template)
    tags = template.reasoning_tags
    for words, known_format in _KNOWN_FORMATS.items():
        if words in source and tags is not None and known_format.start.startswith(tags.start):
            return known_format
    if shown_format is not None or tags is None or tags.answer_prefixes:
        return shown_format
    return ReasoningFormat(tags.start, tags.end)


def shown_tags(template: ChatTemplate) -> ReasoningTags | None:
    """Return the tags that a template writes around the reasoning of the last answer; None if there are none."""
    shown = _shown_reasoning(template)
    if shown is None:
        return None
    start, end = shown.start.strip(), shown.end.strip()
    end_tag = _FIRST_TAG.search(end)
    if end_tag is None:
        return None
    opening = shown.opening.strip()
    if not start:
        has_word = end_tag[1] is not None  # as in ``<|close|>think<|sep|>``
        last_tag = shown.last_tag[0].strip() if has_word else shown.last_tag[2]
        start = opening if opening and end_tag[0] not in opening else last_tag
    answer_prefix = end[end_tag.end() :].strip()
    without_header = answer_prefix.removeprefix(_overlap(shown.prompt.rstrip(), answer_prefix)).strip()
    answer_prefixes = tuple(dict.fromkeys(filter(None, (answer_prefix, without_header))))
    return ReasoningTags(start, end_tag[0], answer_prefixes)


def opened_tags(template: ChatTemplate) -> ReasoningTags | None:
    """Return the well-known tags of which a prompt ends with the start tag; None if there are none."""
    try:
        prompt = template.render([{"role": "user", "content": USER_MARK}]).text.rstrip()
    except ModelError:
        return None
    return next((tags for tags in REASONING_TAGS if prompt.endswith(tags.start)), None)


def _overlap(text: str, other: str) -> str:
    """Return the longest end of a text with which the other text begins."""
    return next((other[:length] for length in range(len(other), 0, -1) if text.endswith(other[:length])), "")


class _ShownReasoning(NamedTuple):
    """What a template writes around the reasoning of the last answer."""

    prompt: str  # the prompt for an answer
    start: str  # the text before the reasoning that is not in the prompt
    end: str
    last_tag: re.Match[str]  # the last tag before the reasoning
    opening: str  # the text at the end of the prompt that is not before the reasoning


def _shown_reasoning(template: ChatTemplate) -> _ShownReasoning | None:
    """Return what a template writes around the reasoning of the last answer; None if it writes no reasoning."""
    user_message = {"role": "user", "content": USER_MARK}
    answer = {"role": "assistant", "content": ANSWER_MARK, "reasoning_content": REASONING_MARK}
    try:
        prompt = template.render([user_message]).text
        chat = template.render([user_message, answer], add_generation_prompt=False).text
    except ModelError:  # some templates want a user's message last
        return None
    text_before, reasoning_mark, text_after = chat.partition(REASONING_MARK)
    end, answer_mark, _ = text_after.partition(ANSWER_MARK)
    common = common_beginning(text_before, prompt)
    start = text_before.removeprefix(common)
    # The tag may be in the prompt itself. Blanks that only complete answers have are not those of the model.
    tag = LAST_TAG.search(text_before if start.strip() else text_before.removesuffix(start))
    if not (reasoning_mark and answer_mark and end.strip()) or tag is None:
        return None
    return _ShownReasoning(prompt, start, end, tag, prompt.removeprefix(common))


def _shown_format(template: ChatTemplate) -> ReasoningFormat | None:
    shown = _shown_reasoning(template)
    if shown is None:
        return None
    if shown.start.strip():
        return ReasoningFormat(shown.start.lstrip("\n"), shown.end)
    return ReasoningFormat(shown.last_tag[0], shown.end.strip() if shown.start else shown.end)

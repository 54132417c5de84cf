"""Where a chat template writes the reasoning of an answer, and what it writes around it."""

from __future__ import annotations

from ..models.errors import ModelError
from .chat_template import ANSWER_MARK, LAST_TAG, ChatTemplate, ReasoningFormat, common_beginning

USER_MARK = "UserMark"
REASONING_MARK = "ReasoningMark"


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


def _shown_format(template: ChatTemplate) -> ReasoningFormat | None:
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
    start = text_before.removeprefix(common_beginning(text_before, prompt))
    # The tag may be in the prompt itself. Blanks that only complete answers have are not those of the model.
    tag = LAST_TAG.search(text_before if start.strip() else text_before.removesuffix(start))
    if not (reasoning_mark and answer_mark and end.strip()) or tag is None:
        return None
    if start.strip():
        return ReasoningFormat(start.lstrip("\n"), end)
    return ReasoningFormat(tag[0], end.strip() if start else end)

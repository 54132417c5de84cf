"""The division of a text into the reasoning and the answer."""

from itertools import groupby

import pytest
from logitsmith.logprobs.events import Reasoning, ReasoningTags
from logitsmith.logprobs.parts import PartSplitter, join_parts, split_text

THINK = Reasoning(ReasoningTags("<think>", "</think>"))
INSIDE = Reasoning(THINK.tags, "inside")
AFTER = Reasoning(THINK.tags, "after")
CHANNELS = Reasoning(
    ReasoningTags(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        ("<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"),
    )
)
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"

SPLITS = {  # the text, its reasoning and its answer
    "no reasoning": (THINK, "plain", "", "plain"),
    "blanks before an answer without reasoning": (THINK, "\n plain ", "", "\n plain "),
    "reasoning": (THINK, "<think>why</think>because", "why", "because"),
    "blanks at the borders": (THINK, "\n<think>\nwhy not\n\n</think>\n\nbe cause\n", "why not", "be cause\n"),
    "no reasoning between the tags": (THINK, "<think>\n\n</think>\n\nso", "", "so"),
    "an open reasoning": (INSIDE, "\nwhy</think>so", "why", "so"),
    "an open reasoning that is not ended": (INSIDE, "why\n", "why", ""),
    "over": (AFTER, "\n<think>so", "", "\n<think>so"),
    "an end tag that is cut off": (THINK, "<think>why</thin", "why</thin", ""),
    "a start tag that is cut off": (THINK, "\n<thin", "<thin", ""),
    "only blanks": (THINK, "\n\n", "", "\n\n"),
    "nearly a start tag": (THINK, "<thin> 2", "", "<thin> 2"),
    "nearly an end tag": (INSIDE, "1 </thi </think >", "1 </thi </think >", ""),
    "tags in the answer": (THINK, "<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    "a tag after the beginning": (THINK, "a<think>b</think>", "", "a<think>b</think>"),
    "channels": (CHANNELS, f"<|channel|>analysis<|message|>why<|end|>{FINAL}so", "why", "so"),
    "two blocks": (
        CHANNELS,
        f"{ANALYSIS}why <|end|><|start|>assistant{ANALYSIS} and how<|end|>{FINAL}so",
        "why\nand how",
        "so",
    ),
    "an empty block": (
        CHANNELS,
        f"{ANALYSIS}<|end|><|start|>assistant{ANALYSIS}\nwhy<|end|>{FINAL}so",
        "why",
        "so",
    ),
    "a second block that is cut off": (
        CHANNELS,
        f"{ANALYSIS}why<|end|><|start|>assistant<|channel|>ana",
        "why\n<|start|>assistant<|channel|>ana",
        "",
    ),
    "a block in the answer": (CHANNELS, f"{FINAL}so<|end|>{ANALYSIS}", "", f"so<|end|>{ANALYSIS}"),
    "one channel": (CHANNELS, "<|channel|>final<|message|>so", "", "so"),
    "a channel that is cut off": (CHANNELS, "<|channel|>fin", "<|channel|>fin", ""),
    "another channel": (CHANNELS, "<|channel|>commentary", "", "<|channel|>commentary"),
    "no channel after the reasoning": (CHANNELS, "<|channel|>analysis<|message|>a<|end|> b", "a", "b"),
}


def pieces(text, size):
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(("reasoning", "text", "thought", "answer"), SPLITS.values(), ids=SPLITS)
def test_the_parts_do_not_depend_on_the_pieces(reasoning, text, thought, answer, size):
    splitter = PartSplitter(reasoning)
    found = [part for piece in pieces(text, size) for part in splitter.push(piece)] + splitter.finish()
    assert join_parts(found) == (thought, answer)
    assert [part for part, _ in groupby(piece.part for piece in found)] == [
        part for part, whole in (("reasoning", thought), ("answer", answer)) if whole
    ]
    assert all(piece.text for piece in found)
    assert join_parts(split_text(text, reasoning)) == (thought, answer)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_part_of_a_token_begins_an_answer_without_a_tag(size):
    splitter = PartSplitter(INSIDE)
    found = [part for piece in pieces("why </thi", size) for part in splitter.push(piece, "reasoning")]
    found += [part for piece in pieces("nk>so", size) for part in splitter.push(piece, "answer")]
    assert join_parts(found + splitter.finish()) == ("why </thi", "nk>so")

"""Writes the labelled messages: python examples/decide/messages.py > examples/decide/labelled.jsonl

Each matter comes twice in a calm tone and twice in an angry one, so that the tone says nothing about the urgency.
"""

import json
import random
from pathlib import Path

import yaml


def main() -> None:
    """Write a line for each message, in a mixed order that is always the same."""
    parts = yaml.safe_load(Path(__file__).with_name("parts.yaml").read_text())
    random.seed(64)
    lines = []
    for urgency, matters in parts["matters"].items():
        for matter in matters:
            for tone, frames in parts["tones"].items():
                for opening, closing in random.sample(frames, 2):
                    labels = {"angry": tone == "angry", "urgency": urgency}
                    lines.append({"input": f"{opening} {matter} {closing}", "labels": labels})
    random.shuffle(lines)
    for line in lines:
        print(json.dumps(line))


if __name__ == "__main__":
    main()

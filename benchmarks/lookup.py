"""Writing with guesses from the text so far against writing without.

python -m benchmarks.lookup [--tokens 120] [--rounds 5]

The same prompts, chains and seeds run with and without `lookup`, in turns. The table has the speed ratio (tokens
per second with `lookup` over those without, the median of the rounds), the share of guesses that were right, and
the number of equal tokens at the start. Beyond 256 tokens llama.cpp computes a single token with a different
kernel.
"""

from __future__ import annotations

import argparse
import statistics

from logitsmith.engine import Done, Model, Token, format_chat, generate, locate
from logitsmith.samplers import build

CODE = """class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def add(self, other):
        return Point(self.x + other.x, self.y + other.y)

    def sub(self, other):
        return Point(self.x - other.x, self.y - other.y)

    def mul("""
ARTICLE = (
    "The lighthouse on the northern cape was built in 1874 and is 41 metres high. Its lamp can be seen from "
    "30 kilometres away. The keeper of the lighthouse lives in a small stone house beside the tower."
)
ASKED = [{"role": "user", "content": f"Repeat this text word for word:\n\n{ARTICLE}"}]
STORY = "Once upon a time, in a lighthouse by the sea, there lived"
GUESSES = (4, 8, 16)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="prompt lookup against none")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with Model.load(locate()[0], n_ctx=1024) as model:
        prompts = {
            "code": (CODE, "temp0.2"),
            "a text to be repeated": (format_chat(model, ASKED), "greedy"),
            "a story": (STORY, "top-k40 > top-p0.95 > min-p0.05 > temp0.8"),
        }
        print(f"{model.name}, {model.threads} threads, {options.tokens} tokens, {options.rounds} rounds")
        print(
            f"{'prompt':22} {'lookup':>6} {'tokens/s ratio':>15} {'guessed':>8} {'right':>6} {'same tokens':>12}"
        )
        for name, (prompt, chain) in prompts.items():
            _compare(model, name, prompt, chain, options)


def _compare(model: Model, name: str, prompt: str, chain: str, options: argparse.Namespace) -> None:
    paces: dict[int, list[float]] = {most: [] for most in (0, *GUESSES)}
    ends: dict[int, tuple[list[int], Done]] = {}
    for turn in range(options.rounds + 1):
        for most in list(paces) if turn % 2 else reversed(paces):
            tokens, done = _write(model, prompt, chain, options.tokens, most)
            ends[most] = tokens, done
            if turn:  # the first round is the warm-up
                paces[most].append(len(tokens) / done.timings.generation)
    plain = ends[0][0]
    for most in GUESSES:
        ratio = statistics.median(a / b for a, b in zip(paces[most], paces[0], strict=True))
        tokens, done = ends[most]
        same = next(
            (n for n, pair in enumerate(zip(tokens, plain, strict=False)) if pair[0] != pair[1]), len(plain)
        )
        guessed, right = done.drafted_tokens or 0, done.accepted_tokens or 0
        share = right / guessed if guessed else 0.0
        print(f"{name:22} {most:6} {ratio:15.2f} {guessed:8} {share:6.0%} {same:5} of {len(plain)}")


def _write(model: Model, prompt: str, chain: str, count: int, most: int) -> tuple[list[int], Done]:
    tokens = []
    built = build(chain, seed=7, vocab=model.vocabulary)
    for event in generate(model, prompt, built, max_tokens=count, lookup=most):
        if isinstance(event, Token):
            tokens.append(event.id)
        elif isinstance(event, Done):
            return tokens, event
    raise RuntimeError("the run ended without a Done event")


if __name__ == "__main__":
    main()

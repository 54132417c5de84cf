"""Generating with draft tokens from the text so far (`lookup`), compared with generating without.

python -m benchmarks.lookup [--tokens 120] [--seeds 5] [PROMPT ...]

The same prompts, presets and seeds run with and without `lookup`, in turns; `benchmarks.draft_runs` explains the
columns. Below the table, the time of a batch of tokens is given as the number of tokens that could be decoded one
by one.
"""

from __future__ import annotations

import argparse

from logitsmith.engine import Model, locate

from .draft_runs import CHAINS, CHAT_PROMPTS, PLAIN_PROMPTS, compare, decode_seconds, print_header

_GUESSES = (4, 8, 16)
_BATCHES = (2, 3, 4, 5, 8, 12, 16)


def main() -> None:
    """Measure, and print the table."""
    names = (*PLAIN_PROMPTS, *CHAT_PROMPTS)
    parser = argparse.ArgumentParser(description="prompt lookup against none")
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help=f"{', '.join(names)} [all]")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    variants = {str(count): {"lookup": count} for count in _GUESSES}
    with Model.load(locate()[0], n_ctx=1024) as model:
        print(f"{model.name}, {model.threads} threads, {options.tokens} tokens, {options.seeds} seeds")
        print_header("lookup")
        for name in options.prompts or names:
            for preset in CHAINS:
                compare(model, name, preset, variants, token_count=options.tokens, seed_count=options.seeds)
        print("\ncost of a batch, in single tokens:", _batch_costs(model))


def _batch_costs(model: Model) -> str:
    """Return, for several batch sizes, the time of a batch with all logits divided by the time of a token."""
    prompt = model.vocabulary.tokenize_prompt(PLAIN_PROMPTS["code"].encode())
    seconds = decode_seconds(model.context, prompt, (1, *_BATCHES))
    return ", ".join(f"{count}: {seconds[count] / seconds[1]:.2f}" for count in _BATCHES)


if __name__ == "__main__":
    main()

"""The cost of bans that never match, and of a return to an earlier token.

python -m benchmarks.rewind [--tokens 120] [--repeats 7] [--phrases 500] [--threads N]

The first row compares a run with many phrases that never match with the run without bans, in turns: the ratio of
their times per token, median and quartiles, at most 1.03. The second row is the time that the search for phrases
and the saved states take per token, as a share of a token's time. The third row divides the time of a return over
20 tokens, from the decision to the next token, by the time of reading 21 tokens in one batch, at most 1.
The peer of a return is reading the tokens again, which a tool without saved states does.
"""

from __future__ import annotations

import argparse
import random
import statistics
from time import perf_counter
from typing import Any

from logitsmith.engine import Model, Token, generate, locate
from logitsmith.engine.decoder import Decoder
from logitsmith.engine.text_guard import TextGuard
from logitsmith.engine.vocabulary import Vocabulary
from logitsmith.samplers import build

from .quartiles import quartiles

_PROMPT = "Once upon a time, in a lighthouse by the sea, there lived"
_DROPPED_TOKENS = 20


def unused_phrases(count: int) -> list[str]:
    """Return phrases of one to three words that no text has, although their first words are usual ones."""
    chooser = random.Random(1)
    words = ("the", "a", "shiver", "heart", "soft", "quiet", "eyes", "voice", "deep", "light", "dark", "cold")
    return [f"{' '.join(chooser.choices(words, k=chooser.randint(1, 2)))} qx{number}" for number in range(count)]


def run_seconds(model: Model, tokens: int, bans: Any) -> tuple[float, int]:
    """Return the time of one run, and the number of its tokens."""
    chain = build("top_k40 > temp0.8", seed=7, vocab=model.vocabulary)
    start = perf_counter()
    count = sum(
        isinstance(event, Token) for event in generate(model, _PROMPT, chain, max_tokens=tokens, bans=bans)
    )
    return perf_counter() - start, count


def seconds_per_token(model: Model, tokens: int, bans: Any) -> float:
    """Return the time per token of one run."""
    seconds, count = run_seconds(model, tokens, bans)
    return seconds / count


def guard_seconds(model: Model, tokens: int, bans: Any) -> float:
    """Return the time that the guard takes per token: the search, the saved state and the copied logits."""
    spent = 0.0
    originals = {name: getattr(Decoder, name) for name in ("_save",)}
    guard_originals = {name: getattr(TextGuard, name) for name in ("review", "first_undecided")}

    def timed(method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal spent
            start = perf_counter()
            try:
                return method(*args, **options)
            finally:
                spent += perf_counter() - start

        return call

    for owner, methods in ((Decoder, originals), (TextGuard, guard_originals)):
        for name, method in methods.items():
            setattr(owner, name, timed(method))
    try:
        _, count = run_seconds(model, tokens, bans)
    finally:
        for owner, methods in ((Decoder, originals), (TextGuard, guard_originals)):
            for name, method in methods.items():
                setattr(owner, name, method)
    return spent / count


def return_seconds(model: Model, vocabulary: Vocabulary) -> tuple[float, float]:
    """Return the time from the decision to go back over 20 tokens to the next token, and of reading 21 tokens."""
    free = [
        event
        for event in generate(model, _PROMPT, build("greedy", vocab=vocabulary), max_tokens=_DROPPED_TOKENS)
        if isinstance(event, Token)
    ]
    ban = {"text": b"".join(token.data for token in free).decode(errors="ignore"), "case": True}
    go_back, make_token = Decoder._go_back, Decoder._make_token
    begins, ends = [], []

    def timed_go_back(decoder: Decoder, *args: Any) -> Any:
        begins.append(perf_counter())
        dropped = go_back(decoder, *args)
        if len(dropped) != _DROPPED_TOKENS:
            raise RuntimeError(f"{len(dropped)} tokens were dropped")
        return dropped

    def timed_make_token(decoder: Decoder, *args: Any) -> Any:
        token = make_token(decoder, *args)
        if len(ends) < len(begins):
            ends.append(perf_counter())
        return token

    Decoder._go_back, Decoder._make_token = timed_go_back, timed_make_token  # type: ignore[method-assign]
    try:
        list(generate(model, _PROMPT, build("greedy", vocab=vocabulary), max_tokens=24, bans=[ban], ban_retries=1))
    finally:
        Decoder._go_back, Decoder._make_token = go_back, make_token  # type: ignore[method-assign]
    start = perf_counter()
    model.context.append_batch([token.id for token in free] + [free[0].id])
    return ends[0] - begins[0], perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--phrases", type=int, default=500)
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    with Model.load(locate()[0], n_ctx=1024, threads=arguments.threads) as model:
        bans = unused_phrases(arguments.phrases)
        seconds_per_token(model, 8, ())
        ratios, shares, return_ratios, token_times = [], [], [], []
        for _ in range(arguments.repeats):
            free = seconds_per_token(model, arguments.tokens, ())
            banned = seconds_per_token(model, arguments.tokens, bans)
            ratios.append(banned / free)
            token_times.append(free)
            shares.append(guard_seconds(model, arguments.tokens, bans) / free)
            spent, reading = return_seconds(model, model.vocabulary)
            return_ratios.append(spent / reading)
        print(f"{1e3 * statistics.median(token_times):.2f} ms per token without bans")
        for title, values in (
            (f"{arguments.phrases} phrases, time per token / without", ratios),
            ("guard's share of a token's time", shares),
            (f"return over {_DROPPED_TOKENS} tokens / reading {_DROPPED_TOKENS + 1}", return_ratios),
        ):
            low, middle, high = quartiles(values)
            print(f"{title:46} {middle:7.4f}  ({low:.4f}..{high:.4f})")


if __name__ == "__main__":
    main()

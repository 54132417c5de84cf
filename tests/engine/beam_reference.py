"""Beam search a second time, as transformers' tensors have it, and by trying every text.

`tensor_search` follows the arrays of GenerationMixin._beam_search (transformers 5) for one prompt: places for
running and for finished texts, filled with -1e9, of which the best are gathered at each step. It shares nothing
with `search_beams`, which keeps lists of texts.
"""

import itertools
import random

import numpy as np

ABSENT = -1e9
"""The score of a place without a text."""


def random_rows(seed, vocabulary_size, ends, end_bonus=0.0):
    """A function from a text to the log-probabilities of its next token, at random but fixed for each text."""

    def row_of(tokens):
        row = np.random.default_rng([seed, 1, *tokens]).normal(scale=1.5, size=vocabulary_size)
        row[list(ends)] += end_bonus
        return row - np.log(np.exp(row).sum())

    return row_of


def tensor_search(row_of, vocabulary_size, beams, max_tokens, ends, penalty, early_stopping):
    """Return the finished texts and their scores, the best first."""
    kept = max(2, 1 + len(ends)) * beams
    running = np.full((beams, max_tokens), -1)
    running_scores = np.full(beams, ABSENT)
    running_scores[0] = 0.0
    finished, finished_scores = running.copy(), np.full(beams, ABSENT)
    is_finished = np.zeros(beams, dtype=bool)
    can_improve = True
    for length in range(max_tokens):
        sums = np.stack([row_of(tuple(text[:length])) for text in running]) + running_scores[:, None]
        order = np.argsort(-sums, axis=None, kind="stable")[:kept]
        scores, texts = sums.ravel()[order], running[order // vocabulary_size]
        texts[:, length] = order % vocabulary_size
        hits = np.isin(texts[:, length], list(ends)) | (length + 1 == max_tokens)
        continued = np.argsort(-(scores + hits * ABSENT), kind="stable")[:beams]
        running, running_scores = texts[continued], (scores + hits * ABSENT)[continued]

        is_just_finished = hits & (np.arange(kept) < beams)
        final_scores = scores / (length + 1) ** penalty
        final_scores = final_scores + ABSENT * (bool(is_finished.all()) and early_stopping is True)
        final_scores = final_scores + ABSENT * (not can_improve) + ABSENT * ~is_just_finished
        merged = np.concatenate([finished_scores, final_scores])
        best = np.argsort(-merged, kind="stable")[:beams]
        finished = np.concatenate([finished, texts])[best]
        finished_scores = merged[best]
        is_finished = np.concatenate([is_finished, is_just_finished])[best]

        reach = max_tokens if early_stopping == "never" and penalty > 0 else length + 1
        worst = np.where(is_finished, finished_scores.min(), ABSENT)
        can_improve = can_improve and bool((running_scores[0] / reach**penalty > worst).any())
        if not can_improve or (is_finished.all() and early_stopping is True) or hits.all():
            break
    return [
        (tuple(int(token) for token in text if token >= 0), float(score))
        for text, score, is_done in zip(finished, finished_scores, is_finished, strict=True)
        if is_done
    ]


def all_texts(row_of, vocabulary_size, max_tokens, ends, penalty):
    """Return every text that ends by a token of ``ends`` or by its length, with its score, the best first."""
    found = []
    for length in range(1, max_tokens + 1):
        for tokens in itertools.product(range(vocabulary_size), repeat=length):
            if ends.isdisjoint(tokens[:-1]) and (tokens[-1] in ends or length == max_tokens):
                logprob = sum(row_of(tokens[:place])[token] for place, token in enumerate(tokens))
                found.append((tokens, logprob / length**penalty))
    return sorted(found, key=lambda text: -text[1])


def random_cases(count, seed):
    """Return settings of searches at random, for `tests.oracle.transformers_beams`."""
    numbers = random.Random(seed)
    return [
        {
            "seed": numbers.randrange(1_000_000),
            "beams": numbers.randint(2, 6),
            "ends": numbers.choice([[], [0], [3], [3, 7]]),
            "bonus": numbers.choice([0.0, 1.0, 2.5]),
            "length_penalty": numbers.choice([-1.0, 0.0, 0.5, 1.0, 1.5, 2.5]),
            "early_stopping": numbers.choice([True, False, "never"]),
            "max_tokens": numbers.randint(1, 9),
        }
        for _ in range(count)
    ]

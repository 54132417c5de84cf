"""Random walks along the tokens that a grammar allows, and what a brute force says at each step."""

from __future__ import annotations

import numpy as np

from .drawn import Brute


def bit_by_bit(rules, vocabulary, text):
    """The mask by brute force: a token is allowed if it leads to the beginning of a sentence.

    Tokens without bytes and control tokens never match text. End tokens are allowed after a complete sentence.
    """
    mask = np.zeros(vocabulary.size, dtype=np.bool_)
    known = {}
    for token, piece in enumerate(vocabulary.pieces):
        if token in vocabulary.eog:
            mask[token] = Brute(rules, text).whole
        elif piece and not vocabulary.is_control(token):
            if piece not in known:
                # Most of a vocabulary goes wrong with its first byte.
                first = known.setdefault(piece[:1], Brute(rules, text + piece[:1]).begins)
                known[piece] = first and (len(piece) == 1 or Brute(rules, text + piece).begins)
            mask[token] = known[piece]
    return mask


def walk(state, random, max_tokens, prefer_long=True):
    """Accept random tokens except end tokens. Yield (mask, token) before each token is accepted."""
    vocabulary = state.grammar.vocabulary
    for _ in range(max_tokens):
        mask = state.mask()
        tokens = [token for token in np.flatnonzero(mask).tolist() if token not in vocabulary.eog]
        if not tokens:
            return
        longer = [token for token in tokens if len(vocabulary.pieces[token]) > 1]
        token = random.choice(longer if prefer_long and longer and random.random() < 0.6 else tokens)
        yield mask, token
        state.accept(token)

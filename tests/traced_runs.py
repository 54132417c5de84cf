"""Runs with traces, made without a model: the lines that `gen --format jsonl --trace` would write."""

import json
import math
import random

WORDS = [
    "the",
    "sea",
    "was",
    "calm",
    "and",
    "a",
    "king",
    "walked",
    "along",
    "its",
    "shore",
    "while",
    "grey",
    "birds",
    "turned",
    "over",
    "the",
    "harbour",
    "of",
    "old",
    "stone",
    "nobody",
    "knew",
    "why",
    "he",
    "had",
    "come",
    "there",
    "but",
    "each",
    "morning",
    "before",
    "light",
    "someone",
    "left",
    "bread",
    "at",
    "the",
    "door",
]
STAGES = ("model", "penalties", "top_k", "min_p", "temperature", "dist")


def piece(token):
    """The bytes of a token: a word, a punctuation mark or a newline."""
    return (b",", b".", b"\n", b"!")[token] if token < 4 else f" {WORDS[(token - 4) % len(WORDS)]}".encode()


def name(token, pieces):
    """``id, token, bytes`` of a token."""
    data = pieces[token] if token in pieces else piece(token)
    return {"id": token, "token": data.decode(errors="backslashreplace"), "bytes": list(data)}


def softmax(logits):
    """Probabilities of the logits by id."""
    top = max(logits.values())
    weights = {token: math.exp(logit - top) for token, logit in logits.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def entropy_of(probs):
    """Entropy in nats."""
    return math.fsum(-p * math.log(p) for p in probs.values() if p > 0)


def trace_of(source, history, top=20, vocabulary=60):
    """A trace, and the token that it draws."""
    logits = {token: float(f"{source.gauss(0, 2.2):.6g}") for token in range(vocabulary)}
    penalized = {token: logit - (1.1 if token in history else 0.0) for token, logit in logits.items()}
    by_logit = sorted(penalized, key=lambda token: -penalized[token])[:40]
    kept = {token: penalized[token] for token in by_logit}
    probs = softmax(kept)
    threshold = 0.05 * max(probs.values())
    likely = {token: logit for token, logit in kept.items() if probs[token] >= threshold}
    hot = {token: logit / 0.8 for token, logit in likely.items()}
    rows = [logits, penalized, kept, likely, hot, hot]
    if source.random() < 0.15 and len(hot) > 1:  # as if xtc had dropped the most likely one
        del hot[max(hot, key=hot.get)]
    probs = [softmax(row) for row in rows]
    notes = [
        None,
        f"{sum(token in history for token in logits)} tokens lowered by up to 1.1",
        None,
        f"p >= {threshold:.4f} = 0.05 x {threshold / 0.05:.4f}",
        None,
        None,
    ]
    u, low = source.random(), 0.0
    for token in sorted(hot, key=lambda token: -hot[token]):
        high = low + probs[-1][token]
        if u <= high:
            break
        low = high
    shown = {token} | {other for row in rows for other in sorted(row, key=lambda other: -row[other])[:top]}
    candidates = [
        {
            **name(other, {}),
            "logits": [row.get(other) for row in rows],
            "probs": [column.get(other) for column in probs],
            "dropped_by": next((number for number, row in enumerate(rows) if other not in row), None),
        }
        for other in sorted(shown, key=lambda other: -logits[other])
    ]
    stages = [
        {
            "name": stage, "step": None if stage == "model" else number - 1, "kept": len(row),
            "entropy": entropy_of(column), "note": note,
        }
        for number, (stage, row, column, note) in enumerate(zip(STAGES, rows, probs, notes, strict=True))
    ]  # fmt: skip
    return {"stages": stages, "candidates": candidates, "draw": {"u": u, "low": low, "high": high}}, token


def traced_events(tokens=60, seed=7, *, same=0, top=20, pieces=None, traced=True, logprobs=5):
    """The events of a run.

    ``same``: the first tokens are those of every run; ``pieces``: other bytes of tokens by their position.
    """
    history, events = [], []
    source, common = random.Random(seed), random.Random(0)
    for index in range(tokens):
        trace, token = trace_of(common if index < same else source, history[-8:], top)
        history.append(token)
        first = {candidate["id"]: candidate["probs"][0] for candidate in trace["candidates"]}
        own = {token: pieces[index]} if pieces and index in pieces else {}
        for candidate in trace["candidates"]:
            candidate.update(name(candidate["id"], own))
        top_token = sorted(first, key=lambda other: -first[other])[:logprobs]
        event = {
            "event": "token", "index": index, **name(token, own), "logprobs_from": "model",
            "logprob": math.log(first[token]),
            "top_logprobs": [{**name(other, own), "logprob": math.log(first[other])} for other in top_token],
            "entropy": trace["stages"][0]["entropy"],
            "text": own.get(token, piece(token)).decode(errors="replace"),
        }  # fmt: skip
        events.append(event | ({"trace": trace} if traced else {}))
    start = {
        "event": "start", "model": "tiny", "seed": seed, "prompt": "Once", "prompt_tokens": 1, "context": 512,
        "command": f"gen Once --seed {seed} --format jsonl", "max_tokens": tokens, "stop": [],
        "chain": [{"penalties": {"repeat": 1.1}}, {"top_k": {"k": 40}}, {"min_p": {"p": 0.05}},
                  {"temperature": {"t": 0.8}}, {"dist": {}}], "versions": {"logitsmith": "0.1.0"},
    }  # fmt: skip
    done = {"event": "done", "finish_reason": "length", "text": "".join(event["text"] for event in events)}
    return [start, *events, done]


def jsonl(events):
    """The lines of events."""
    return "".join(json.dumps(event) + "\n" for event in events)

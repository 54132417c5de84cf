"""What stands below the text of a recorded run: a table of its tokens, the most surprising ones, means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...logprobs.recorded import RecordedDistribution
    from ...logprobs.records import LogprobSource
    from .inspected_run import InspectedRun, InspectedToken

FALLEN_MARK = "▾"
"""Behind a token for which a step other than the draw decided: it dropped the likeliest one."""
_LISTED_SURPRISES = 10
_MEANS_INDENT = 20
"""Where the numbers of a mean begin."""


def print_surprises(tokens: Sequence[InspectedToken]) -> None:
    """List the ten tokens that were the least probable."""
    from .tables import print_wrapped, table
    from .token_label import token_label

    known = [(token.logprob, token) for token in tokens if token.logprob is not None]
    rows = []
    for logprob, token in sorted(known, key=lambda item: item[0])[:_LISTED_SURPRISES]:
        likeliest = "" if token.distribution is None else _likeliest_other(token.distribution, token.data)
        rows.append(
            (token.place, token_label(token.data), f"{exp(logprob):.4f}", f"{abs(logprob):.3f}", likeliest)
        )
    if rows:
        print_wrapped("most surprising", 0)
        table(("", "token", "probability", "surprise", "likeliest"), rows)
        print()


def _likeliest_other(distribution: RecordedDistribution, data: bytes) -> str:
    """The likeliest token with its probability, if it is recorded and another one."""
    from .token_label import token_label

    first = max(distribution.top_logprobs, key=lambda other: other.logprob or 0.0, default=None)
    if first is None or bytes(first.data) == data or first.logprob is None:
        return ""
    return f"{token_label(bytes(first.data))} {exp(first.logprob):.4f}"


def print_fallen(tokens: Sequence[InspectedToken]) -> None:
    """Say how often each stage dropped the likeliest token, which explains the marks."""
    from ...common.text import count_noun
    from .tables import print_wrapped
    from .text import visible

    stages = Counter(token.fallen for token in tokens if token.fallen is not None)
    if stages:
        counts = ", ".join(f"{name} {count}" for name, count in stages.most_common())
        total = count_noun(stages.total(), "token")
        print_wrapped(visible(f"{FALLEN_MARK} {total} for which a step dropped the likeliest one: {counts}"), 2)


def print_table(tokens: Sequence[InspectedToken], top: int) -> None:
    """Print a row for each token, with ``top`` alternatives."""
    from .tables import table
    from .token_label import token_label

    rows = []
    for token in tokens:
        distribution = token.distribution
        logprob = None if distribution is None else distribution.logprob
        entropy = None if distribution is None else distribution.entropy
        alternatives = [] if distribution is None else distribution.top_logprobs[:top]
        rows.append(
            (
                token.place,
                token_label(token.data),
                "-" if logprob is None else f"{exp(logprob):.4f}",
                "-" if logprob is None else f"{abs(logprob):.3f}",
                "-" if entropy is None else f"{entropy:.3f}",
                "  ".join(
                    f"{token_label(bytes(other.data))} {exp(other.logprob):.3f}"
                    for other in alternatives
                    if other.logprob is not None
                ),
            )
        )
    table(("", "token", "probability", "surprise", "entropy", "alternatives" if top else ""), rows)
    print()


def print_means(run: InspectedRun, source: LogprobSource | None) -> None:
    """Print a line on the run, then the mean surprise and entropy of the prompt and of the new tokens."""
    from ...common.text import count_noun
    from ...logprobs.scores import MeanSurprise
    from .tables import print_wrapped
    from .text import visible

    ending = "cut off" if run.done is None else run.done.finish_reason or "whole"
    origin = ""
    if run.start is not None:
        origin = f", {run.start.model}" + ("" if run.start.seed is None else f", seed {run.start.seed}")
    known_tokens = [token for token in run.tokens if token.distribution is not None]
    sources = {token.line.logprobs_from for token in known_tokens if token.line.logprobs_from}
    logprobs_of = f", logprobs of the {source or '/'.join(sorted(sources))}" if sources else ""
    print_wrapped(visible(f"{count_noun(len(run.tokens), 'token')} ({ending}){origin}{logprobs_of}"), 2)
    for event, title in (("prompt", "prompt"), ("token", "written")):
        distributions = [
            token.distribution
            for token in run.tokens
            if token.distribution is not None and token.line.event == event
        ]
        surprise = MeanSurprise.of([-item.logprob for item in distributions if item.logprob is not None])
        entropy = MeanSurprise.of([item.entropy for item in distributions if item.entropy is not None])
        if surprise is not None:
            print_wrapped(
                f"{title:8}  surprise  {surprise.nats:.3f} nats ({surprise.bits:.3f} bits), "
                f"perplexity {surprise.perplexity:.3f}",
                _MEANS_INDENT,
            )
        if entropy is not None:
            print(f"{title:8}  entropy   {entropy.nats:.3f} nats ({entropy.bits:.3f} bits)")

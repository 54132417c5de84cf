"""Questions about an input: the tokens that are read, and the time against llama-server and `gen score --choices`.

python -m benchmarks.decide [--questions 100] [--rounds 3] [--slots 8]

Each question has four options, and the input has 500 tokens. Tokens: those that were read, divided by those that
must be read at least: each beginning of the prompts once (the input once, the rest of each question once), and
each token of the tree of the options' spellings once.

Time: the same questions and prompts, in turns in each round, each round about another input.

- llama-server (from the package xllamacpp) is asked option by option, as its API allows: for the label as it is
  given, one request a token and one for the end, each with the prompt and the tokens before it, `cache_prompt` on,
  and the 50 most likely tokens in the answer. What several options begin with is asked once. One client, and as
  many as there are slots. It answers less: one spelling of 16, and nothing for a token that is not among the 50.
- `gen score --choices` scores the four labels after each prompt, without an end and other spellings.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from subprocess import Popen
from threading import local
from time import perf_counter, process_time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from logitsmith.decide import Decider, DecideSettings, Outcome, Question, Wording, choice, decide
from logitsmith.engine import Model, locate
from logitsmith.engine.scoring import score_choices

from tests.recover import serving

from .server import processor_seconds

INPUT_TOKENS = 500
SHOWN_TOKENS = 50  # in the answers of llama-server
PEOPLE = ("captain", "cook", "doctor", "driver", "farmer", "guest", "keeper", "painter", "sailor", "teacher")
OPTIONS = {
    "mood": ("cheerful", "afraid", "angry", "tired"),
    "wish": ("a longer stay", "a refund", "some quiet", "nothing"),
    "place": ("harbour", "kitchen", "lighthouse", "garden"),
    "colour": ("red", "dark blue", "green", "white"),
    "reason": ("bad weather", "bad luck", "no money", "no time"),
    "plan": ("leave", "stay", "wait for help", "call a friend"),
    "meal": ("bread", "fish soup", "apple pie", "rice"),
    "price": ("ten dollars", "twenty dollars", "free", "unknown"),
    "hour": ("morning", "noon", "evening", "midnight"),
    "answer": ("agree", "disagree", "ask again", "say nothing"),
}
SENTENCES = (
    "The {0} came to the {2} in the evening and asked the {1} for help.",
    "Nobody had seen the {1} since the storm, and the {0} was worried.",
    "There was bread on the table, and the {2} smelled of fish and paint.",
    "The {0} paid ten dollars and left before it was dark.",
)


class Times(NamedTuple):
    """Seconds of a turn: wall time, and processor time of the side that answers."""

    wall: float
    processor: float


def questions(count: int) -> list[Question]:
    """Return questions with four options each."""
    pairs = [(person, topic) for person in PEOPLE for topic in OPTIONS]
    return [choice(f"What is the {topic} of the {person}?", OPTIONS[topic]) for person, topic in pairs[:count]]


def input_text(model: Model, number: int) -> str:
    """Return a text of 500 tokens, another one for each number."""
    text = f"Chapter {number + 1}."
    sentence = 0
    while len(model.vocabulary.tokenize_prompt(text.encode())) < INPUT_TOKENS:
        people = [PEOPLE[(number + sentence * step) % len(PEOPLE)] for step in (1, 3)]
        text += " " + SENTENCES[sentence % len(SENTENCES)].format(*people, OPTIONS["place"][sentence % 3])
        sentence += 1
    return text


def prompts(decider: Decider, text: str) -> list[list[int]]:
    """Return the prompts of all questions about a text."""
    wording = decider.settings.wording
    texts = [wording.prompt(wording.text(question, question.options, text)) for question in decider.questions]
    return [decider.model.vocabulary.tokenize_prompt(prompt.encode()) for prompt in texts]


def beginnings(sequences: Iterable[Sequence[int]]) -> set[tuple[int, ...]]:
    """Return all beginnings of sequences of tokens, each once: the nodes of their tree."""
    return {tuple(tokens[:end]) for tokens in sequences for end in range(1, len(tokens) + 1)}


def _decide(decider: Decider, text: str, slots: int, outcomes: list[Outcome]) -> None:
    outcomes += decide(decider, [text], slots)


def print_tokens(decider: Decider, text: str, outcome: Outcome) -> None:
    """Print the tokens that were read for a decision, and those that must be read at least."""
    decision = outcome.decision
    usage = decision.usage
    read = usage.input_tokens - usage.cached_tokens + usage.option_tokens
    prompt_nodes = len(beginnings(prompts(decider, text)))
    spelling_nodes = 0
    for answer in decision.answers:
        spellings = answer.as_json(with_tokens=True)["tokens"]
        spelling_nodes += len(beginnings(one["ids"] for option in spellings for one in option))
    least = prompt_nodes + spelling_nodes
    print(f"{usage.input_tokens:,} tokens of prompts, {usage.cached_tokens:,} of them not read again,")
    print(
        f"{usage.option_tokens:,} tokens of options: {read:,} read, at least {prompt_nodes:,} + {spelling_nodes:,}"
    )
    print(f"ratio {read / least:.3f}", flush=True)


class Server:
    """llama-server, asked for the probabilities of options."""

    def __init__(self, process: Popen[Any], url: str) -> None:
        self._process = process
        self._port = urlsplit(url).port
        self._connections = local()
        self.missing = 0  # tokens that were not among those shown

    def time(self, decider: Decider, text: str, clients: int) -> Times:
        """Ask all questions about a text."""
        vocabulary = decider.model.vocabulary
        jobs = [
            (prompt, [vocabulary.tokenize_after(option.label.encode(), prompt[-1]) for option in question.options])
            for prompt, question in zip(prompts(decider, text), decider.questions, strict=True)
        ]
        wall, processor = perf_counter(), processor_seconds(self._process)
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(self._ask, jobs))
        return Times(perf_counter() - wall, processor_seconds(self._process) - processor)

    def _ask(self, job: tuple[list[int], list[list[int]]]) -> None:
        prompt, labels = job
        for beginning in [(), *sorted(beginnings(labels))]:
            shown = self._next_tokens([*prompt, *beginning])
            wanted = {
                label[len(beginning)]
                for label in labels
                if tuple(label[: len(beginning)]) == beginning != tuple(label)
            }
            self.missing += len(wanted - shown)

    def _next_tokens(self, prompt: list[int]) -> set[int]:
        if not hasattr(self._connections, "one"):
            self._connections.one = HTTPConnection("127.0.0.1", self._port)
        body = {"prompt": prompt, "n_predict": 1, "n_probs": SHOWN_TOKENS, "temperature": 0, "cache_prompt": True}
        connection: HTTPConnection = self._connections.one
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        return {token["id"] for token in answer["completion_probabilities"][0]["top_logprobs"]}


@contextmanager
def running_server(slots: int) -> Iterator[Server]:
    """Run llama-server while inside."""
    process, url = serving.start(slots=slots)
    try:
        yield Server(process, url)
    finally:
        serving.stop(process)


def timed(work: Callable[[], object]) -> Times:
    """Do something in this process."""
    wall, processor = perf_counter(), process_time()
    work()
    return Times(perf_counter() - wall, process_time() - processor)


def score_labels(decider: Decider, text: str) -> None:
    """Score the labels of all questions as `gen score --choices` does."""
    vocabulary = decider.model.vocabulary
    for prompt, question in zip(prompts(decider, text), decider.questions, strict=True):
        labels = [vocabulary.tokenize_after(option.label.encode(), prompt[-1]) for option in question.options]
        score_choices(decider.model, prompt, labels)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="gen decide against llama-server and gen score")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=8)
    options = parser.parse_args()
    with Model.load(locate()[0], n_ctx=1024, threads=2) as model, running_server(options.slots) as server:
        decider = Decider(model, questions(options.questions), DecideSettings(Wording.for_model(model)))
        rounds: list[dict[str, Times]] = []
        for number in range(options.rounds):
            text = input_text(model, number)
            outcomes: list[Outcome] = []
            sides: dict[str, Callable[[], Times]] = {
                "gen decide": partial(timed, partial(_decide, decider, text, options.slots, outcomes)),
                "gen score --choices": partial(timed, partial(score_labels, decider, text)),
                "llama-server, 1 client": partial(server.time, decider, text, 1),
                f"llama-server, {options.slots} clients": partial(server.time, decider, text, options.slots),
            }
            order = list(sides)[:: -1 if number % 2 else 1]
            times = {name: sides[name]() for name in order}
            if number == 0:
                print_tokens(decider, text, outcomes[0])
            rounds.append({name: times[name] for name in sides})
        _print(rounds)
        print(f"{server.missing / (2 * options.rounds):.0f} tokens of labels were not among {SHOWN_TOKENS} shown")


def _print(rounds: Sequence[dict[str, Times]]) -> None:
    print(f"{'':28} {'seconds':>8} {'processor':>10} {'ratio':>8} {'processor':>10}")
    for name in rounds[0]:
        wall, processor = (
            statistics.median(values) for values in zip(*(one[name] for one in rounds), strict=True)
        )
        ratios = [[own / peer for own, peer in zip(one["gen decide"], one[name], strict=True)] for one in rounds]
        wall_ratio, processor_ratio = (statistics.median(values) for values in zip(*ratios, strict=True))
        print(f"{name:28} {wall:8.1f} {processor:10.1f} {wall_ratio:8.3f} {processor_ratio:10.3f}")


if __name__ == "__main__":
    main()

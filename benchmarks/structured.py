"""Structured output of `gen`, compared with llama-completion, under llama.cpp's example grammars.

python -m benchmarks.structured [--rounds 5] [--tokens 128] [--greedy] [EXAMPLE ...]

Both programs run the bundled model with the same prompt, grammar, chain, seed and threads, and take turns. The
speed of generation is the number of tokens after the first, divided by the time that the run takes longer than a
run of one token, so that the start does not count. The start, which includes compiling the grammar, is the run of
one token.

The table shows the ratios, the number of tokens that each program generated, how many of gen's tokens were forced,
and the length of the common beginning of both texts. If llama.cpp's grammar rejects a token, another one is drawn,
which advances the random numbers, so only ``--greedy`` texts are equal. Under a schema, llama.cpp's grammar lets
the model choose spaces. The peer and its grammars come from `python -m benchmarks.build_llama_cpp`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from logitsmith.engine import locate

from .build_llama_cpp import example_grammar, program
from .completion import timed_run
from .grammar import SCHEMA as RECORD_SCHEMA
from .quartiles import quartiles
from .start import ENVIRONMENT

_PROMPTS = {
    "arithmetic": "Some equations, one a line:\n(1 + 2) = 3\n",
    "c": "Here are some functions in C.\n\n",
    "chess": '[Event "World Championship"]\n[Result "1-0"]\n\n',
    "english": "The lighthouse keeper wrote in his journal that the storm",
    "japanese": "これは日本の昔話です。",
    "json": "A user record in JSON: ",
    "json_arr": "An array of user records in JSON:\n",
    "list": "What to take along to a lighthouse:\n",
}
"""A prompt for each of llama.cpp's example grammars."""
_SCHEMAS = {
    "schema: a record": RECORD_SCHEMA,
    "schema: an array of records": {"type": "array", "items": RECORD_SCHEMA, "minItems": 4, "maxItems": 4},
}
_COMMON = ("-s", "7", "-t", "2", "-c", "2048")
_SIDES = ("llama-completion", "gen")


@dataclass(frozen=True)
class _Text:
    """The output of a command: its text, its tokens without an end token, and how many of these were forced."""

    text: str
    tokens: int
    forced: int = 0


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="gen against llama-completion, under grammars")
    parser.add_argument("examples", nargs="*", help="their names [all]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--greedy", action="store_true", help="take the most likely token, instead of the default chain"
    )
    options = parser.parse_args()
    chain = ("--temp", "0") if options.greedy else ()
    print(
        f"{'':28} {'tokens/s':>8} {'quartiles':>14} {'start':>6} {'tokens':>11} {'forced':>6} {'equal text':>12}"
    )
    speeds, starts = [], []
    for name in options.examples or (*_PROMPTS, *_SCHEMAS):
        speed, start = _compare(name, chain, options.tokens, options.rounds)
        speeds.append(speed)
        starts.append(start)
    speed, start = statistics.geometric_mean(speeds), statistics.geometric_mean(starts)
    print(f"{'geometric mean':28} {speed:8.2f} {'':14} {start:6.2f}")


def _compare(name: str, chain: Sequence[str], count: int, rounds: int) -> tuple[float, float]:
    """Measure one example, and print its line. Return the ratios of speeds and of start times.

    Args:
        name: name of the example.
        chain: the flags of both programs that choose the chain.
        count: maximum number of tokens.
        rounds: number of turns of each side.
    """
    commands = {side: (*command, *chain) for side, command in zip(_SIDES, _commands(name), strict=True)}
    peer, own = _peer_text(commands["llama-completion"], count), _own_text(commands["gen"], count)
    texts = {"llama-completion": peer, "gen": own}
    starts: dict[str, list[float]] = {side: [] for side in commands}
    writing: dict[str, list[float]] = {side: [] for side in commands}
    for turn in range(rounds):
        for side in _SIDES[:: 1 if turn % 2 else -1]:
            short, long = (timed_run(commands[side], tokens).seconds for tokens in (1, count))
            starts[side].append(short)
            writing[side].append((long - short) / (texts[side].tokens - 1))
    speed_ratios = [theirs / ours for theirs, ours in zip(*writing.values(), strict=True)]
    low, speed, high = quartiles(speed_ratios)
    start = statistics.median(ours / theirs for theirs, ours in zip(*starts.values(), strict=True))
    spread, counts = f"{low:.2f} to {high:.2f}", f"{own.tokens} / {peer.tokens}"
    equal = f"{_equal_length(own.text, peer.text)} of {len(own.text)}"
    print(f"{name:28} {speed:8.2f} {spread:>14} {start:6.2f} {counts:>11} {own.forced:6} {equal:>12}", flush=True)
    return speed, start


def _equal_length(text: str, other: str) -> int:
    """Return the number of characters in the common beginning of both texts."""
    pairs = zip(text, other, strict=False)
    return next((n for n, (mine, theirs) in enumerate(pairs) if mine != theirs), min(len(text), len(other)))


def _commands(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the command lines of an example, the peer's and gen's, without the chain and the length."""
    if name in _PROMPTS:
        prompt, grammar = _PROMPTS[name], ("--grammar-file", str(example_grammar(name)))
    else:
        prompt, grammar = _PROMPTS["json"], ("-j", json.dumps(_SCHEMAS[name]))
    model = str(locate()[0])
    peer = (str(program("llama-completion")), "-m", model, "-p", prompt, "-no-cnv", "--no-display-prompt")
    # The file is also mapped in the longer run: the time to read it varies more than some of these texts take.
    own = (sys.executable, "-m", "logitsmith.cli", prompt, "-m", model)
    return (*peer, *_COMMON, *grammar), (*own, *_COMMON, *grammar)


def _peer_text(command: Sequence[str], count: int) -> _Text:
    """Run llama-completion, which prints how many tokens it sampled and read."""
    process = _run((*command, "-n", str(count)))
    read, sampled = (_count_of(line, process.stderr) for line in ("prompt eval", "samplers"))
    text, is_ended, _ = process.stdout.partition(" [end of text]")
    return _Text(text, sampled - read - bool(is_ended))


def _count_of(line: str, log: str) -> int:
    """Return the number of tokens in a line of llama.cpp's timings."""
    found = re.search(rf"{line} time = .*/ +(\d+) tokens", log)
    if found is None:
        raise SystemExit(f"llama-completion printed no {line} time")
    return int(found[1])


def _own_text(command: Sequence[str], count: int) -> _Text:
    """Run gen, whose last event contains the counts."""
    *_, done = map(json.loads, _run((*command, "-n", str(count), "--format", "jsonl")).stdout.splitlines())
    return _Text(done["text"], done["usage"]["completion_tokens"], done["forced_tokens"])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command, and return the finished process with its output."""
    return subprocess.run(
        command,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
        encoding="utf-8",
        errors="replace",
    )


if __name__ == "__main__":
    main()

"""What this server alone says about an answer: the field ``x_gen``, with the command that repeats the answer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from ..common.strict_json import encode_exact_json
from ..logprobs.events import Start
from ..requests.strict_model import Json
from ..samplers.building import chain_notation
from .resolution import Choice, PreparedRequest


def x_gen(prepared: PreparedRequest, choice: Choice, start: Start, exactness: str) -> Json:
    """Return the field. ``choice`` is the one that the command repeats."""
    return {
        "seed": start.seed,
        "chain": chain_notation(start.chain),
        "ignored": list(prepared.ignored),
        "exactness": exactness,
        "command": command_of(choice, start),
    }


def command_of(choice: Choice, start: Start) -> str | None:
    """Return the command that repeats a choice in a terminal; None if no command can."""
    words = _command_words(choice, start, chain_notation(start.chain))
    # As a word of the command, "-" would be stdin.
    return shlex.join(words) if choice.is_repeatable and choice.prompt != "-" else None


def _command_words(choice: Choice, start: Start, chain: str) -> Iterator[str]:
    """Yield the words of the command that repeats a choice. The model is the one that the user has chosen."""
    yield from ("gen", "run", "--no-chat", "--chain", chain, "--seed", str(start.seed))
    yield from ("-n", "-1" if start.max_tokens is None else str(start.max_tokens))
    for text in start.stop:
        yield from ("--stop", text)
    if start.grammar is not None:
        description = start.grammar
        table = {description["kind"]: description["source"]}
        if description.get("after"):
            table["after"] = description["after"]
        if description["kind"] == "gbnf" and description.get("root", "root") != "root":
            table["root"] = description["root"]
        yield from ("--set", f"grammar={encode_exact_json(table)}")
    for name, value in start.text_rules.items():
        setting = [*value, {}] if name == "phases" else value  # the last phase has the chain of the command
        yield from ("--set", f"{name}={json.dumps(setting)}")
    if any("\\" in text for text in (choice.prompt, *start.stop)):
        yield "--no-escape"
    yield from ("--", choice.prompt)

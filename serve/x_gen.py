"""What this server alone says about an answer: the field ``x_gen``, with the command that repeats the answer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from ..common.strict_json import encode_exact_json
from ..common.strict_model import Json
from ..logprobs.events import Start
from ..samplers.building import chain_notation
from .resolution import Choice, PreparedRequest


def x_gen(prepared: PreparedRequest, choice: Choice, start: Start, exactness: str) -> Json:
    """Return the field ``x_gen``. ``choice``: the text that the command repeats."""
    left_out = [part.as_json() for part in prepared.left_out]
    return {
        "seed": start.seed,
        "chain": chain_notation(start.chain),
        "ignored": list(prepared.ignored),
        **({"left_out": left_out} if left_out else {}),
        "exactness": exactness,
        "command": command_of(choice, start),
    }


def command_of(choice: Choice, start: Start) -> str | None:
    """Return the command that repeats a choice in a terminal; None if no command can."""
    is_stdin = choice.prompt == "-"  # as a word of a command, "-" means that the prompt is read from stdin
    if is_stdin or not choice.is_repeatable:
        return None
    return shlex.join(_command_words(choice, start, chain_notation(start.chain)))


def _command_words(choice: Choice, start: Start, chain: str) -> Iterator[str]:
    """Yield the words of the command that repeats a choice. It names no model: the user has chosen one."""
    max_tokens = -1 if start.max_tokens is None else start.max_tokens
    yield from ("gen", "run", "--no-chat", "--chain", chain, "--seed", str(start.seed), "-n", str(max_tokens))
    for text in start.stop:
        yield from ("--stop", text)
    if start.grammar is not None:
        yield from ("--set", f"grammar={encode_exact_json(_grammar_table(start.grammar))}")
    for name, value in start.text_rules.items():
        if name == "phases":
            value = [*value, {}]  # noqa: PLW2901 - the last phase has the chain of the command
        yield from ("--set", f"{name}={json.dumps(value)}")
    if any("\\" in text for text in (choice.prompt, *start.stop)):
        yield "--no-escape"
    yield from ("--", choice.prompt)


def _grammar_table(description: Json) -> Json:
    """Return a grammar as presets write it."""
    table = {description["kind"]: description["source"]}
    if description.get("after"):
        table["after"] = description["after"]
    if description["kind"] == "gbnf" and description.get("root", "root") != "root":
        table["root"] = description["root"]
    return table

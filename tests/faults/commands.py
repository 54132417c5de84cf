"""The commands that write, each in a separate folder, and readers of their results."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from logitsmith.chats.records import unpack_tokens
from logitsmith.chats.store import ChatStore

GEN = (sys.executable, "-m", "logitsmith.cli")
MODEL = ("-m", "model.gguf", "-t", "1")
REQUESTS, TEXTS, ANSWER_TOKENS, RUN_TOKENS, TURNS = 24, 24, 60, 800, 8


def read_jsonl(path: Path) -> list[Any]:
    """Return the complete lines of a file; an incomplete last line is left out."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def run_result(folder: Path) -> list[object]:
    """Return the tokens of a run."""
    return [line["id"] for line in read_jsonl(folder / "stdout") if line["event"] == "token"]


def score_result(folder: Path) -> list[object]:
    """Return the numbers and scores of the lines."""
    return [(line["line"], line["sum_logprob"]) for line in read_jsonl(folder / "stdout")]


def batch_result(folder: Path) -> list[object]:
    """Return the answers with their requests' ids."""
    return [(line["id"], line["text"]) for line in read_jsonl(folder / "out.jsonl")]


def printed_batch_result(folder: Path) -> list[object]:
    """Return the answers on stdout with their requests' ids."""
    return [(line["id"], line["text"]) for line in read_jsonl(folder / "stdout")]


def recover_result(folder: Path) -> list[object]:
    """Return the recovered logprobs if the recovery is complete; otherwise nothing."""
    path = folder / "out.json"
    found = json.loads(path.read_bytes()) if path.exists() else {"complete": False}
    return [(token["id"], token["logprob"]) for token in found["tokens"]] if found["complete"] else []


def basis_result(folder: Path) -> list[object]:
    """Return the arrays of the basis; nothing if the file does not exist."""
    path = folder / "out.npz"
    if not path.exists():
        return []
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return [(name, arrays[name].tobytes()) for name in sorted(arrays.files)]


def chat_result(folder: Path) -> list[object]:
    """Return the turns of the latest chat in the store, and the tokens of each answer, even an incomplete one."""
    path = folder / "data" / "logitsmith" / "chats.db"
    if not path.exists():
        return []
    found: list[object] = []
    with closing(ChatStore.open(path)) as store:
        assert store.database.rows("PRAGMA integrity_check") == [("ok",)]
        for summary in store.list_conversations(1):
            turns = [message for message in store.messages(summary.id) if message.role == "user"]
            for place, turn in enumerate(turns):
                found.append((place, turn.content))
                answers = store.database.rows(
                    "SELECT token_ids FROM answer JOIN message ON message.number = answer.parent"
                    " WHERE hash = ? AND conversation = ?",
                    (turn.hash, summary.id),
                )
                for (token_ids,) in answers:
                    found += [(place, index, token) for index, token in enumerate(unpack_tokens(token_ids))]
    return found


@dataclass(frozen=True)
class Command:
    """A command that writes.

    Attributes:
        arguments: arguments of `gen`.
        result: reads the result from the folder.
        output: file that the command writes; None for stdout.
        resume: arguments that continue an incomplete result; empty if the command starts over.
        ordered: whether an incomplete result is the beginning of the complete one; otherwise it is any part of it.
        stdin: file that the command reads from stdin; None for nothing.
    """

    arguments: Sequence[str]
    result: Callable[[Path], list[object]]
    output: str | None = None
    resume: Sequence[str] = ()
    ordered: bool = True
    stdin: str | None = None


_RUN = ("The sea", "-n", str(RUN_TOKENS), "--ignore-eos", "--seed", "1", "--format", "jsonl", *MODEL)
_BATCH = ("batch", "in.jsonl", "--format", "jsonl", "--deterministic", *MODEL)
_CHAT = ("chat", "--chat-template", "chat.jinja", "-n", "100", "--ignore-eos", "-s", "1", *MODEL)
_RECOVER = ("recover", "The sea", "--window", "1", "--method", "single", "-o", "out.json", *MODEL)

COMMANDS = {
    "run": Command(_RUN, run_result),
    "score": Command(("score", "--jsonl", "texts.jsonl", *MODEL), score_result),
    "batch": Command((*_BATCH, "-o", "out.jsonl"), batch_result, "out.jsonl", ("--resume",), ordered=False),
    "batch-stdout": Command(_BATCH, printed_batch_result, ordered=False),
    "chat": Command(_CHAT, chat_result, stdin="turns.txt"),
    "recover": Command(_RECOVER, recover_result, "out.json", ("--resume",)),
    "recover-basis": Command(("recover-basis", "-o", "out.npz", *MODEL), basis_result, "out.npz"),
}


def write_inputs(folder: Path, model: Path) -> None:
    """Write the files that the commands read."""
    (folder / "model.gguf").symlink_to(model)
    requests = [
        {"id": f"r{number}", "prompt": "The sea" + " a" * number, "max_tokens": ANSWER_TOKENS, "set": {"top_k": 0}}
        for number in range(REQUESTS)
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in requests))
    texts = [{"text": "The sea. " * (number + 20)} for number in range(TEXTS)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in texts))
    (folder / "chat.jinja").write_text("{% for message in messages %}{{ message.content }}. {% endfor %}")
    (folder / "turns.txt").write_text("".join(f"The sea {number}\n" for number in range(TURNS)))


def start(
    command: Command,
    folder: Path,
    environment: dict[str, str],
    arguments: Sequence[str] | None = None,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start `gen` with its streams in files of the folder. ``arguments``: replace the command's."""
    words = [*GEN, *(command.arguments if arguments is None else arguments)]
    turns = Path(os.devnull) if command.stdin is None else folder / command.stdin
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err, turns.open("rb") as stdin:
        streams = {"stdin": stdin, "stdout": out, "stderr": err, **options}
        return subprocess.Popen(words, cwd=folder, env=environment, **streams)


def plain_environment(folder: Path) -> dict[str, str]:
    """Return the environment without the user's settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GEN_", "XDG_", "LC_"))}
    folders = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    return {**kept, **folders, "NO_COLOR": "1", "COLUMNS": "200"}

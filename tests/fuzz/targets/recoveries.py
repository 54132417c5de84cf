"""What `gen recover` reads: checkpoints, its .npz files, and what endpoints answer."""

from __future__ import annotations

import io
import json

import httpx
import numpy as np
from logitsmith.recover import LlamaServerEndpoint, OpenAIEndpoint, RecoverError
from logitsmith.recover.basis.basis import Basis
from logitsmith.recover.endpoints.answer_checks import checked_answer
from logitsmith.recover.endpoints.base import EndpointAnswer
from logitsmith.recover.query_journal import QueryJournal
from logitsmith.recover.question import QuestionKey
from logitsmith.recover.results.result_files import read_row

from ..target import Target
from .files import file, folder

_RUN = {"api": "local", "prompt": "x", "window": 5}
_VOCABULARY = 20


def checkpoint(data: bytes) -> None:
    """A checkpoint to go on with. Nothing is lost but a torn last line."""
    path = file("checkpoint.jsonl", data)
    try:
        journal = QueryJournal(path, _RUN, resume=True)
    except RecoverError:
        assert path.read_bytes() == data
        raise
    kept = path.read_bytes()
    answers = list(journal._answers.values())
    journal.close()
    assert kept == data[: data.rfind(b"\n") + 1] or not answers
    for answer in answers:
        assert all(isinstance(token, int) and token >= 0 for token in answer.logprobs)
        assert answer.calls >= 0


def _checkpoint_seed() -> bytes:
    path = folder() / "seed.jsonl"
    path.unlink(missing_ok=True)
    journal = QueryJournal(path, _RUN, resume=True)
    journal.add(QuestionKey.of({}), EndpointAnswer(3, -0.5, {3: -0.5, 4: -1.0}, {3: b"a", 4: b"\xff"}, 2, (-3.0,)))
    journal.add(QuestionKey.of({1: 2.0}), EndpointAnswer(4))
    data = path.read_bytes()
    journal.close()
    return data


def basis(data: bytes) -> None:
    """A basis."""
    Basis.load(file("basis.npz", data))


def recovery(data: bytes) -> None:
    """A recovery, from which a basis is made."""
    read_row(file("row.npz", data))


def _npz(write, **arrays: np.ndarray) -> bytes:
    data = io.BytesIO()
    write(data, **arrays)
    return data.getvalue()


def _basis_seeds() -> list[bytes]:
    path = folder() / "seed.npz"
    matrix = np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
    Basis.of_matrix(matrix, "m", [b"a"] * 9).save(path)
    return [path.read_bytes()]


def _row_seeds() -> list[bytes]:
    arrays = {"ids": np.arange(9, dtype=np.int32), "logprobs": np.linspace(-5, -1, 9)}
    return [_npz(np.savez, **arrays), _npz(np.savez_compressed, **arrays)]


def _answers(endpoint: type, arguments: dict):
    def answer(data: bytes) -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=data))
        from logitsmith.recover import HttpOptions

        made = endpoint("http://api.test/v1/", transport=transport, options=HttpOptions(), **arguments)
        made.stop_retries()
        try:
            for bias in ({}, {1: 3.0}):
                checked_answer(made.query("x", bias), made)
        finally:
            made.close()

    return answer


_PIECES = [bytes([97 + token]) for token in range(_VOCABULARY)]
_STEP = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -1.5, "bytes:\\xff": -2}]}
_OPENAI = [{"choices": [{"text": "a", "logprobs": _STEP}]}, {"error": {"message": "no"}}]
_TOP = {"token": "a", "bytes": [97], "logprob": -0.5}
_CHAT = [{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{**_TOP, "top_logprobs": [_TOP]}]}}]}]
_ENTRY = {"id": 1, "token": "a", "bytes": [97], "prob": 0.5}
_SERVER = [
    {
        "tokens": [1],
        "timings": {"prompt_n": 1},
        "completion_probabilities": [{**_ENTRY, "top_probs": [_ENTRY, {**_ENTRY, "id": 2}]}],
    },
    {"tokens": [1]},
]
_OPENAI_ARGUMENTS = {"model": "m", "window": 5, "pieces": _PIECES}

TARGETS = (
    Target(
        "checkpoints",
        checkpoint,
        (RecoverError,),
        [_checkpoint_seed()],
        [b'"ids": ', b'"logprobs": ', b'"calls": ', b'"key": ', b"\n", b'"bytes": '],
    ),
    Target(
        "bases",
        basis,
        (RecoverError,),
        _basis_seeds(),
        [b"PK\x01\x02", b"PK\x03\x04", b"(1000000000000, 3)", b"<f4", b"|O", b"True"],
        is_text=False,
    ),
    Target(
        "recoveries",
        recovery,
        (RecoverError,),
        _row_seeds(),
        [b"PK\x01\x02", b"PK\x03\x04", b"(1000000000000,)", b"<f8", b"|O", b"True"],
        is_text=False,
    ),
    Target(
        "completions",
        _answers(OpenAIEndpoint, _OPENAI_ARGUMENTS),
        (RecoverError,),
        [json.dumps(body).encode() for body in _OPENAI],
    ),
    Target(
        "chat completions",
        _answers(OpenAIEndpoint, {**_OPENAI_ARGUMENTS, "chat": True}),
        (RecoverError,),
        [json.dumps(body).encode() for body in _CHAT],
    ),
    Target(
        "llama-server",
        _answers(LlamaServerEndpoint, {"window": 5, "vocab_size": _VOCABULARY}),
        (RecoverError,),
        [json.dumps(body).encode() for body in _SERVER],
    ),
)

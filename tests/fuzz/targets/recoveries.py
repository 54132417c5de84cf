"""The input of `gen recover`: checkpoints, its .npz files, and what endpoints answer."""

from __future__ import annotations

import io
import json

import httpx
import numpy as np
from logitsmith.engine import ModelError
from logitsmith.recover import LlamaServerEndpoint, OpenAIEndpoint, RecoverError, output_matrix, read_tiktoken
from logitsmith.recover.basis import Basis
from logitsmith.recover.endpoints.base import EndpointResponse, checked_response
from logitsmith.recover.journal import QueryJournal, query_key
from logitsmith.recover.results import read_row

from ...engine.big_model import write_model
from ..target import Target
from .files import contents, file, folder

_RUN = {"api": "local", "prompt": "x", "window": 5}
_VOCABULARY = 20


def checkpoint(data: bytes) -> None:
    """A checkpoint to resume. Nothing is lost except an incomplete last line."""
    path = file("checkpoint.jsonl", data)
    try:
        journal = QueryJournal(path, _RUN, resume=True)
    except RecoverError:
        assert path.read_bytes() == data
        raise
    kept = path.read_bytes()
    answers = list(journal._responses.values())
    journal.close()
    assert kept == data[: data.rfind(b"\n") + 1] or not answers
    for answer in answers:
        assert all(isinstance(token, int) and token >= 0 for token in answer.logprobs)
        assert answer.calls >= 0


def _checkpoint_seed() -> bytes:
    path = folder() / "seed.jsonl"
    path.unlink(missing_ok=True)
    journal = QueryJournal(path, _RUN, resume=True)
    journal.add(query_key({}), EndpointResponse(3, -0.5, {3: -0.5, 4: -1.0}, {3: b"a", 4: b"\xff"}, 2, (-3.0,)))
    journal.add(query_key({1: 2.0}), EndpointResponse(4))
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


def _responses(endpoint: type, arguments: dict):
    def answer(data: bytes) -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=data))
        from logitsmith.recover import HttpOptions

        made = endpoint("http://api.test/v1/", transport=transport, options=HttpOptions(), **arguments)
        made.stop_retries()
        try:
            for bias in ({}, {1: 3.0}):
                checked_response(made.query("x", bias), made)
        finally:
            made.close()

    return answer


def tiktoken(data: bytes) -> None:
    """A tokenizer's file."""
    read_tiktoken(file("t.tiktoken", data))


def matrix(data: bytes) -> None:
    """A GGUF file, whose output matrix gives a basis."""
    output_matrix(file("matrix.gguf", data))


def _matrix_seed() -> bytes:
    path = folder() / "matrix-seed.gguf"
    write_model(path, 8, width=32)
    return path.read_bytes()


def server_model(data: bytes) -> None:
    """The model facts that llama.cpp's server reports."""
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=data))
    endpoint = LlamaServerEndpoint("http://api.test/", transport=transport)
    endpoint.stop_retries()
    try:
        json.dumps(endpoint.identity)
        assert isinstance(endpoint.vocab_size, int)
        endpoint.count_tokens("x")
    finally:
        endpoint.close()


def failures(data: bytes) -> None:
    """A status, a line of headers, and a body, for which every endpoint gives up."""
    first, _, body = data.partition(b"\n")
    status, _, header = first.partition(b" ")
    code = int(status) if status.isdigit() and len(status) == 3 else 500
    headers = [(b"retry-after", header), (b"location", header)]
    transport = httpx.MockTransport(lambda request: httpx.Response(code, headers=headers, content=body))
    endpoint = LlamaServerEndpoint("http://api.test/", vocab_size=_VOCABULARY, transport=transport)
    endpoint.stop_retries()
    try:
        checked_response(endpoint.query("x", {}), endpoint)
    finally:
        endpoint.close()


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
_OPENAI_ARGUMENTS = {"model": "m", "window": 5, "token_bytes": _PIECES}

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
        _responses(OpenAIEndpoint, _OPENAI_ARGUMENTS),
        (RecoverError,),
        [json.dumps(body).encode() for body in _OPENAI],
    ),
    Target(
        "chat completions",
        _responses(OpenAIEndpoint, {**_OPENAI_ARGUMENTS, "uses_chat_completions": True}),
        (RecoverError,),
        [json.dumps(body).encode() for body in _CHAT],
    ),
    Target(
        "llama-server",
        _responses(LlamaServerEndpoint, {"window": 5, "vocab_size": _VOCABULARY}),
        (RecoverError,),
        [json.dumps(body).encode() for body in _SERVER],
    ),
    Target(
        "server models",
        server_model,
        (RecoverError,),
        [
            json.dumps(
                {"data": [{"id": "m", "meta": {"n_vocab": 20, "n_embd": 3, "size": 9}}], "tokens": [1, 2]}
            ).encode(),
            b'{"data": [{"id": "m"}], "tokens": []}',
        ],
        [b'"n_vocab": ', b'"meta": ', b'"id": ', b'"tokens": '],
    ),
    Target(
        "failures",
        failures,
        (RecoverError,),
        [
            b'429 3\n{"error": {"message": "slower"}}',
            b"503 Wed, 21 Oct 2026 07:28:00 GMT\nbusy",
            b'307 https://other.test/x?key=1\n{"error": "moved"}',
            b"204 \n",
        ],
        [
            b"429 ",
            b"301 ",
            b"200 ",
            b"nan",
            b"inf",
            b"Wed, 21 Oct 9999 07:28:00 +2500",
            b'"message": ',
            b'"error": ',
        ],
    ),
    Target(
        "tiktoken",
        tiktoken,
        (RecoverError,),
        [b"YQ== 0\nYg== 1\nYWI= 2\n", *contents("tests/recorded/inputs/wrong.tiktoken")],
        [b"==", b" ", b"\n", b"0", b"999999999999"],
    ),
    Target(
        "output matrices",
        matrix,
        (RecoverError, ModelError),
        [_matrix_seed()],
        [b"output.weight", b"token_embd.weight", b"general.alignment"],
        is_text=False,
    ),
)

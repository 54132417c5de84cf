"""What `gen` reads with a model at hand: lines of `gen score --jsonl`, tokens of ``--logprob-of``, escapes."""

from __future__ import annotations

import io
from functools import cache

from logitsmith.cli.flag_values import process_escapes
from logitsmith.cli.inputs.settings import logprob_request
from logitsmith.cli.options.model import read_overrides
from logitsmith.cli.options.output import OutputOptions
from logitsmith.common.errors import UsageError
from logitsmith.engine import Model, ModelError
from logitsmith.engine.model_files import check_overrides
from logitsmith.jobs.lines import InvalidLineError, number_lines
from logitsmith.jobs.scoring import scored_line
from logitsmith.models.gguf import GgufHeader

from ...engine.big_model import write_sentencepiece_model
from ..target import Target
from .files import contents, folder

_MOST_BYTES = 3000
"""A longer text takes a time that says nothing about its reader."""


@cache
def _model() -> Model:
    path = folder() / "score.gguf"
    write_sentencepiece_model(path, adds_bos=True)
    return Model.load(path, n_ctx=128, threads=1)


def score_lines(data: bytes) -> None:
    """Lines that `gen score --jsonl` scores; a wrong one does not end the others."""
    first: Exception | None = None
    for number, line in number_lines(io.BytesIO(data[:_MOST_BYTES])):
        try:
            scored_line(_model(), line, number, None).encode()
        except (InvalidLineError, ModelError) as error:
            first = first or error
    if first:
        raise first


def logprob_of(data: bytes) -> None:
    """The value of ``--logprob-of``, as the system gives it to Python."""
    text = data[:_MOST_BYTES].replace(b"\0", b"").decode(errors="surrogateescape")
    request = logprob_request(OutputOptions(logprob_of=text), _model().vocabulary)
    _model().vocabulary.check(request.token_ids)


def escapes(data: bytes) -> None:
    """A text with escapes."""
    process_escapes(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def overrides(data: bytes) -> None:
    """Values of ``--override-kv``, which are checked against the metadata of a small model."""
    text = data[:_MOST_BYTES].decode(errors="surrogateescape")
    metadata = {"general.architecture": b"llama", "llama.block_count": 1, "llama.rope.freq_base": 1e4}
    header = GgufHeader(metadata, 1, frozenset(), None, frozenset())
    check_overrides(read_overrides([text]), header)


TARGETS = (
    Target(
        "score lines",
        score_lines,
        (InvalidLineError, ModelError),
        [
            b'{"text": "The sea."}\n{"text": "a", "id": [1]}\n',
            b'{"prompt": "The", "choices": [" sea", "."]}\n',
            b'{"prompt": "", "choices": ["a"], "scores": null}\n',
            *contents("tests/recorded/inputs/scores.jsonl"),
        ],
        [
            b'"text": ',
            b'"prompt": ',
            b'"choices": ',
            b'"tokens": ',
            b'"bits_per_byte": ',
            b"<s>",
            b"\n",
            b"<0x41>",
        ],
    ),
    Target(
        "logprob-of",
        logprob_of,
        (UsageError,),
        [b'T, " T", <[42]>', b'"\\u0041",h', b"<s>,</s>"],
        [b"<[", b"]>", b'"', b",", b"\\", b"\\u", b"<s>", b" ", b"999999999999", b"\xe2\x96\x81"],
    ),
    Target("escapes", escapes, (), [b"a\\n\\x41", b"\\xff\\\\"], [b"\\x", b"\\", b"\\n", b"\\xc3"]),
    Target(
        "overrides",
        overrides,
        (UsageError, ModelError),
        [
            b"llama.block_count=int:2,llama.rope.freq_base=float:1e6",
            b"tokenizer.ggml.add_bos_token=bool:true",
            b"a=str:b",
        ],
        [b"=int:", b"=float:", b"=bool:true", b"=str:", b",", b"llama.expert_count", b"nan", b"general.alignment"],
    ),
)

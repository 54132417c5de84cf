"""GGUF files: checked here, then opened by llama.cpp in a process of their own."""

from __future__ import annotations

import os
import signal
import struct
import traceback
from pathlib import Path

from logitsmith.engine import Model, ModelError, generate
from logitsmith.models.gguf import check_gguf
from logitsmith.samplers import SamplingError, build

from ...engine.big_model import write_model
from ..target import Target
from .files import file, folder

_SECONDS = 5
_NOT_SO, _OTHER_ERROR = 3, 4


def gguf(data: bytes) -> None:
    """A model file. A signal that ends llama.cpp's process is a finding."""
    path = file("m.gguf", data)
    check_gguf(path)
    child = os.fork()
    if child == 0:
        _load(str(path))
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), f"the process ended by {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.WEXITSTATUS(status)
    assert code != _OTHER_ERROR, _traceback().read_text()
    if code == _NOT_SO:
        raise ModelError(f"{path}: llama.cpp refuses it")


def _load(path: str) -> None:
    """Load the model and write a token; ends the process."""
    try:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with Model.load(path, n_ctx=32, threads=1) as model:
            model.vocabulary.tokenize(b"t1 t2")
            list(generate(model, "t1", build("greedy"), max_tokens=2))
        os._exit(0)
    except (ModelError, SamplingError):  # the weights may be NaN
        os._exit(_NOT_SO)
    except BaseException:
        _traceback().write_text(traceback.format_exc())
        os._exit(_OTHER_ERROR)


def _traceback() -> Path:
    """What the process leaves behind that opened the model."""
    return folder() / "traceback.txt"


def _seed() -> bytes:
    path = folder() / "seed.gguf"
    write_model(path, 24, width=32)
    return path.read_bytes()


def _number(value: int) -> bytes:
    return struct.pack("<I", value)


TARGETS = (
    Target(
        "gguf",
        gguf,
        (ModelError,),
        [_seed()],
        [
            b"llama",
            b"gpt2",
            b"bert",
            b"mamba",
            b"rwkv",
            b"t5",
            b"gemma3",
            b"clip",
            b"qwen2moe",
            b"spm!",
            _number(0),
            _number(1),
            _number(2**31),
            _number(2**32 - 1),
        ],
        is_text=False,
    ),
)

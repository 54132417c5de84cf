"""Grammars of requests are compiled in another process first, which ends if the compilation takes too long.

llguidance computes a long time for some grammars of a few characters, such as an intersection of regular
expressions. It holds Python's lock all the time, and cannot be stopped. In this process, such a grammar would stop
all requests. The limit counts processor time, so that a grammar is not rejected because the machine is busy.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING

from ..grammars.errors import GrammarError
from ..grammars.spec import GrammarSpec

if TYPE_CHECKING:
    from ..engine.vocabulary import Vocabulary

MAX_CPU_SECONDS = 2
_MAX_WAIT_SECONDS = 60.0
"""Time after which a compilation ends on a machine so busy that the process gets no processor time."""
_LIMIT_SIGNALS = (-signal.SIGXCPU, -signal.SIGABRT, -signal.SIGSEGV)
"""Exit codes of a process that ends at its limits: of processor time, and of memory in code of Rust and of C."""
_MAX_MEMORY_BYTES = 4 << 30
_MAX_REMEMBERED = 1_000


@dataclass(eq=False)
class TokenTable:
    """The tokens of a model, for grammars in a process that has no model.

    Attributes:
        pieces: the bytes of every token.
        eog: the ids of end-of-generation tokens.
        control: the ids of control tokens.
        special: the ids of tokens by their text, for tokens that a grammar names.
    """

    pieces: list[bytes]
    eog: frozenset[int]
    control: frozenset[int]
    special: dict[bytes, int]
    _ids: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenTable:
        """Return the tokens of a vocabulary."""
        named = {vocabulary.piece(token): token for token in vocabulary.control | vocabulary.eog}
        return cls(list(vocabulary.pieces), vocabulary.eog, vocabulary.control, named)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.pieces)

    def is_control(self, token: int) -> bool:
        """Return whether a token is a control token."""
        return token in self.control

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return tokens whose bytes are the text. They need not be the tokens that the model would choose."""
        if special and data in self.special:
            return [self.special[data]]
        if not self._ids:
            self._ids = {piece: token for token, piece in enumerate(self.pieces) if token not in self.control}
        whole = self._ids.get(data)
        if whole is not None:
            return [whole]
        return [self._ids[byte] for byte in (data[at : at + 1] for at in range(len(data))) if byte in self._ids]


class CompileGuard:
    """A compiler of grammars in other processes; a grammar that does not end in time is an error.

    The processes are started when they are needed.

    Args:
        vocabulary: the vocabulary of the model.
        process_count: number of grammars that can be compiled at a time.
    """

    def __init__(self, vocabulary: Vocabulary, process_count: int = 2) -> None:
        self._vocabulary = vocabulary
        self._idle: SimpleQueue[_Compiler | None] = SimpleQueue()
        for _ in range(process_count):
            self._idle.put(None)
        self._results: OrderedDict[bytes, bool] = OrderedDict()
        self._lock = Lock()

    def check(self, spec: GrammarSpec) -> None:
        """Raise ``GrammarError`` if the grammar cannot be compiled in time. Reports no other errors.

        Raises ``UnavailableError`` if the process ends for another reason, which is not the grammar's fault.
        """
        text = repr((spec.kind, spec.root, spec.after, spec.schema_lenient, spec.source))
        key = sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            is_fast = self._results.get(key)
        if is_fast is None:
            is_fast = self._compile(spec)
            with self._lock:
                self._results[key] = is_fast
                while len(self._results) > _MAX_REMEMBERED:
                    self._results.popitem(last=False)
        if not is_fast:
            raise GrammarError(
                f"{spec.label}: the compilation of this grammar takes more than {MAX_CPU_SECONDS} s of processor "
                "time, or too much memory"
            )

    def _compile(self, spec: GrammarSpec) -> bool:
        compiler, is_fast = self._idle.get(), None
        try:
            for _ in range(2):  # an idle process may have ended, such as by the system for lack of memory
                compiler = compiler or _Compiler(TokenTable.of(self._vocabulary))
                is_fast = compiler.compile(spec)
                if is_fast is not None:
                    return is_fast
                compiler.close()
                compiler = None
        finally:
            if compiler is not None and not is_fast:
                compiler.close()
            self._idle.put(compiler if is_fast else None)
        raise _unavailable("the process that compiles grammars was ended twice; try again later")

    def close(self) -> None:
        """End the idle processes. Busy ones end when their work has ended."""
        while not self._idle.empty():
            compiler = self._idle.get()
            if compiler is not None:
                compiler.close()


class _Compiler:
    """A process that compiles one grammar at a time."""

    def __init__(self, table: TokenTable) -> None:
        self._connection, other_end = Pipe()
        with other_end:
            self._process = subprocess.Popen(  # noqa: S603 - a fixed command
                # -P: nothing is imported from the current folder
                [sys.executable, "-P", "-m", __name__, str(other_end.fileno())],
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the server
            )
        with suppress(OSError):
            self._connection.send(table)

    def compile(self, spec: GrammarSpec) -> bool | None:
        """Return whether the compilation ends within the limits, with or without an error.

        Returns None if the process has ended for another reason. Raises ``UnavailableError`` on a busy machine.
        """
        try:
            self._connection.send((spec.kind, spec.source, spec.root, spec.after, spec.schema_lenient))
            if self._connection.poll(_MAX_WAIT_SECONDS):
                return bool(self._connection.recv())
        except (EOFError, OSError):
            return False if self._process.wait() in _LIMIT_SIGNALS else None
        raise _unavailable(
            f"the grammar was not compiled within {_MAX_WAIT_SECONDS:g} s: the machine is busy; try again later"
        )

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _unavailable(message: str) -> Exception:
    from .errors import UnavailableError  # noqa: PLC0415 - it imports starlette, which would slow each process down

    return UnavailableError(message)


def _serve(connection: Connection) -> None:
    """Compile the grammars that arrive, until the server closes the connection."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    table: TokenTable = connection.recv()
    with suppress(EOFError, OSError):
        while True:
            kind, source, root, after, is_lenient = connection.recv()
            # The system ends the process at this limit, also inside of a function of C or Rust.
            _, hard = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (ceil(time.process_time()) + MAX_CPU_SECONDS, hard))
            is_fast = True
            try:
                GrammarSpec("grammar", kind, source, root, after, is_lenient).start(table).mask()
            except GrammarError:
                pass
            except MemoryError:
                is_fast = False
            connection.send(is_fast)


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))

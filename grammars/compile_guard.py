"""A guard that compiles grammars in another process first, because llguidance may compute for hours, or crash.

llguidance computes for a long time for some grammars of a few characters, such as an intersection of regular
expressions. Meanwhile, it holds Python's lock and cannot be stopped. Long chains of rules or references overflow
its stack, which ends the process. The limit counts processor time, so that a grammar is not rejected because the
machine is busy.

The server tries each grammar with the tokens of its model. Elsewhere, a grammar that `is_plainly_safe` is compiled
without another process, whose start takes 0.3 s.
"""

from __future__ import annotations

import atexit
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from multiprocessing.connection import Pipe
from queue import SimpleQueue
from threading import Event
from typing import NamedTuple

from ..common.cache import LimitedCache
from ..common.errors import LogitsmithError
from .errors import GrammarError
from .tokenizer import BYTE_VOCABULARY, Vocabulary

WORKER = "logitsmith.grammars.compile_worker"
MAX_CPU_SECONDS = 2
# time after which a compilation ends on a machine so busy that the process gets no processor time
_MAX_WAIT_SECONDS = 60.0
_OUT_OF_TIME = "takes more than {seconds} s of processor time"
OUT_OF_MEMORY = "takes more than 4 GB of memory"
_OUT_OF_STACK = (
    "is not possible: its rules, references or brackets are linked too deeply, or a number is too large"
)
# what is wrong with a grammar, by the exit code of a process that ends at one of its limits
_FAULTS = {
    -signal.SIGXCPU: _OUT_OF_TIME,
    -signal.SIGABRT: OUT_OF_MEMORY,
    -signal.SIGSEGV: _OUT_OF_STACK,
    -signal.SIGBUS: _OUT_OF_STACK,
}
_MAX_REMEMBERED_FAULTS = 1_000


@dataclass(eq=False)
class TokenTable:
    """The tokens of a model, for grammars in a process that has no model."""

    pieces: list[bytes]  # the bytes of each token
    eog: frozenset[int]  # the ids of end-of-generation tokens
    control: frozenset[int]  # the ids of control tokens
    special: dict[bytes, int]  # the ids of control and end-of-generation tokens by their text
    _text_token_ids: dict[bytes, int] = field(default_factory=dict)  # the ids of other tokens by their bytes

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> TokenTable:
        eog = frozenset(vocabulary.eog)
        control = frozenset(token for token in range(vocabulary.size) if vocabulary.is_control(token))
        special = {vocabulary.pieces[token]: token for token in control | eog}
        return cls(list(vocabulary.pieces), eog, control, special)

    @property
    def size(self) -> int:
        return len(self.pieces)

    def is_control(self, token: int) -> bool:
        return token in self.control

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return tokens whose bytes are the text. They need not be the tokens that the model would choose."""
        if special and data in self.special:
            return [self.special[data]]
        if not self._text_token_ids:
            self._text_token_ids = {
                piece: token for token, piece in enumerate(self.pieces) if token not in self.control
            }
        if data in self._text_token_ids:
            return [self._text_token_ids[data]]
        single_bytes = (bytes([byte]) for byte in data)
        return [self._text_token_ids[byte] for byte in single_bytes if byte in self._text_token_ids]


class Task(NamedTuple):
    """A grammar that the other process compiles: the fields of a `GrammarSpec`, or a translation to Lark."""

    kind: str  # the kind of a `GrammarSpec`; empty if ``source`` is llguidance's Lark
    source: str
    root: str = "root"
    after: str | None = None
    schema_lenient: bool = False


class CompileGuard:
    """A compiler of grammars in other processes. A compilation that takes too long is an error of the grammar."""

    # A process is started when it is needed. ``process_count``: number of grammars that can be compiled at a time.
    # ``cpu_seconds``: limit of processor time for one grammar; None: `MAX_CPU_SECONDS`. ``unavailable``: makes the
    # error for a process that ended for a reason that is not the grammar's fault.

    def __init__(
        self,
        vocabulary: Vocabulary,
        process_count: int = 2,
        cpu_seconds: int | None = None,
        unavailable: Callable[[str], Exception] = LogitsmithError,
    ) -> None:
        self._vocabulary = vocabulary
        self._cpu_seconds = MAX_CPU_SECONDS if cpu_seconds is None else cpu_seconds
        self._unavailable = unavailable
        # one entry for each grammar that can be compiled now; None: the process is not started yet
        self._idle: SimpleQueue[_Compiler | None] = SimpleQueue()
        for _ in range(process_count):
            self._idle.put(None)
        # what is wrong with each grammar, by the digest of the task; empty if nothing is wrong
        self._faults: LimitedCache[bytes, str] = LimitedCache(_MAX_REMEMBERED_FAULTS)

    def check(self, task: Task, origin: str = "") -> None:
        """Raise ``GrammarError`` if the grammar cannot be compiled in time. Reports no other errors."""
        # Raises the error of ``unavailable`` if the process ends for a reason that is not the grammar's fault.
        # ``origin``: the place of the error.
        key = sha256(repr(task).encode("utf-8", "surrogatepass")).digest()
        fault = self._faults.get(key)
        if fault is None:
            fault = self._compile(task)
            self._faults.put(key, fault)
        if fault:
            raise GrammarError(
                f"the compilation of this grammar {fault.format(seconds=self._cpu_seconds)}",
                origin=origin,
                advice="fewer rules, references, alternatives or repetitions, or less nesting, may help",
            )

    def _compile(self, task: Task) -> str:
        """Return what is wrong with a grammar; empty if it is compiled within the limits."""
        compiler = self._idle.get()
        reusable_compiler: _Compiler | None = None
        try:
            for _ in range(2):  # the system may have ended an idle process, for example for lack of memory
                if compiler is None:
                    compiler = _Compiler(TokenTable.of(self._vocabulary), self._cpu_seconds)
                fault = compiler.compile(task, self._unavailable)
                if fault == "":
                    reusable_compiler = compiler
                if fault is not None:
                    return fault
                compiler.close()
                compiler = None
        finally:
            if compiler is not None and compiler is not reusable_compiler:
                compiler.close()
            self._idle.put(reusable_compiler)
        raise self._unavailable("the process that compiles grammars was ended twice; try again later")

    def close(self) -> None:
        """End the idle processes. Busy ones end when their work has ended."""
        while not self._idle.empty():
            compiler = self._idle.get()
            if compiler is not None:
                compiler.close()


class _Compiler:
    """A process that compiles one grammar at a time."""

    def __init__(self, table: TokenTable, cpu_seconds: int) -> None:
        self._connection, other_end = Pipe()
        with other_end:
            self._process = subprocess.Popen(  # noqa: S603 - a fixed command
                # -P: nothing is imported from the current folder
                [sys.executable, "-P", "-m", WORKER, str(other_end.fileno())],
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C ends only this process
            )
        with suppress(OSError):
            self._connection.send((table, cpu_seconds))

    def compile(self, task: Task, unavailable: Callable[[str], Exception]) -> str | None:
        """Return what is wrong with a grammar; empty if its compilation ends in time, with or without an error."""
        # Returns None if the process has ended for a reason that is not the grammar's fault.
        try:
            self._connection.send(task)
            if self._connection.poll(_MAX_WAIT_SECONDS):
                return str(self._connection.recv())
        except (EOFError, OSError):
            return _FAULTS.get(self._process.wait())
        raise unavailable(
            f"the grammar was not compiled within {_MAX_WAIT_SECONDS:g} s: the machine is busy; try again later"
        )

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


# Limits of a grammar that is compiled without another process, see `is_plainly_safe`
_MAX_PLAIN_CHARACTERS = 60_000
_MAX_PLAIN_LINES = 500
_MAX_PLAIN_DEPTH = 60
_MAX_PLAIN_REFERENCES = 60
_NON_BRACKETS = re.compile(r"[^()\[\]{}]+")
_LARGE_COUNT = re.compile(
    r"""
    (?<!\\x)\{[0-9,]*[0-9]{4}  # a repetition such as x{1000}, but not a character such as \x{1000}
    | (?:Length|Items|Properties)"?:[ ]?[0-9.e+]{5}  # a limit of a JSON Schema, such as "maxLength": 10000
    | [0-9]{16}
    """,
    re.VERBOSE,
)
_SCHEMA_START = "start: %json "
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/')
_INTERSECTION_OR_COMPLEMENT = re.compile(r"[&~]")


is_other_process = Event()  # set in the process that compiles grammars for another process


def is_plainly_safe(lark: str) -> bool:
    """Return True for a grammar, in llguidance's dialect of Lark, that is small in each respect."""
    # The limits are far below the sizes with which llguidance takes long or crashes. Brackets in literals are
    # counted, too, so the result may be False for a safe grammar.
    if is_other_process.is_set():
        return True
    if len(lark) > _MAX_PLAIN_CHARACTERS or lark.count("\n") > _MAX_PLAIN_LINES:
        return False
    if lark.count('"$ref"') > _MAX_PLAIN_REFERENCES or _LARGE_COUNT.search(lark):
        return False
    is_schema = lark.startswith(_SCHEMA_START)
    if not is_schema and _INTERSECTION_OR_COMPLEMENT.search(_LITERAL.sub("", lark)):
        return False
    depth = 0
    max_depth = 0
    for bracket in _NON_BRACKETS.sub("", lark):
        depth += 1 if bracket in "([{" else -1
        max_depth = max(max_depth, depth)
    return max_depth <= _MAX_PLAIN_DEPTH


_CPU_SECONDS_WITHOUT_SERVER = 20


@cache
def _guard_of_bytes() -> CompileGuard:
    """Return the guard of grammars outside of the server, which is closed when the program ends."""
    guard = CompileGuard(BYTE_VOCABULARY, process_count=1, cpu_seconds=_CPU_SECONDS_WITHOUT_SERVER)
    atexit.register(guard.close)
    return guard


def check_in_other_process(lark: str) -> None:
    """Raise ``GrammarError`` for Lark that takes too much time or memory, or crashes llguidance."""
    _guard_of_bytes().check(Task(kind="", source=lark))

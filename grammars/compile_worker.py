"""The process in which `compile_guard` tries grammars. Its argument is the descriptor of a connection."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import suppress
from math import ceil
from multiprocessing.connection import Connection

from .compile_guard import OUT_OF_MEMORY, Task, TokenTable, is_other_process
from .errors import GrammarError
from .grammar import GrammarState
from .matcher import new_matcher
from .spec import GrammarSpec

_MAX_MEMORY_BYTES = 4 << 30
# Half of the stack that a thread usually has. A grammar that is compiled with it can be compiled in a thread.
_MAX_STACK_BYTES = 4 << 20


def serve(connection: Connection) -> None:
    """Compile the grammars that arrive, until the process that sends them closes the connection."""
    is_other_process.set()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):
        _set_limit(resource.RLIMIT_AS, _MAX_MEMORY_BYTES)
    with suppress(ValueError, OSError):
        _set_limit(resource.RLIMIT_STACK, _MAX_STACK_BYTES)
    table: TokenTable
    table, cpu_seconds = connection.recv()
    with suppress(EOFError, OSError):
        while True:
            task: Task = connection.recv()
            # The system ends the process at this limit, also inside of a function of C or Rust.
            _set_limit(resource.RLIMIT_CPU, ceil(time.process_time()) + cpu_seconds)
            connection.send(_fault_of(task, table))


def _set_limit(kind: int, limit: int) -> None:
    _, hard_limit = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, hard_limit))


def _fault_of(task: Task, table: TokenTable) -> str:
    """Return which limit a grammar exceeds; empty if none. The caller finds other errors itself."""
    try:
        if task.kind:
            state = GrammarSpec("grammar", *task).start(table)
            if isinstance(state, GrammarState):
                _ = state.forced_text  # only this takes long for a literal with a large count
            state.mask()
        else:
            matcher = new_matcher(table, task.source)
            matcher.compute_ff_bytes()
            matcher.compute_bitmask()
    except GrammarError:
        pass
    except MemoryError:
        return OUT_OF_MEMORY
    return ""


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))

"""What a cluster computes: tasks, the service that answers them on a worker, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True)
class Task:
    """A piece of work. ``key``: names it; ``content``: whatever the service understands, can be pickled."""

    key: str
    content: Any


class TaskResult(NamedTuple):
    """What became of a task.

    Attributes:
        key: the task's.
        content: what the service made of it; None: it ends every process that it is given to.
        has_failed: True if it was not answered.
    """

    key: str
    content: Any | None
    has_failed: bool = False


class Service(Protocol):
    """What answers tasks in a worker's process, such as a loaded model."""

    def facts(self) -> dict[str, Any]:
        """What the driver wants to know of this worker before it gets a task; can be pickled."""
        ...

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Answer tasks as they come, in any order.

        Args:
            tasks: None means that there is none yet: the next one is asked for when that suits.
            answer: called with each result.
            progress: called with the number of units, such as tokens, that were made.
        """
        ...


FindFile = Callable[[Path], Path]
"""Returns where the worker's node has a file that the driver named."""

ServiceFactory = Callable[[FindFile], Service]
"""Makes the service in the worker's process; can be pickled."""


@dataclass(frozen=True)
class ServicePlan:
    """What workers run.

    Attributes: ``make``: makes the service; ``files``: what it needs; a node that lacks them gets them.
    """

    make: ServiceFactory
    files: Sequence[Path] = ()

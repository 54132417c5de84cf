"""Services that compute nothing, for tests of workers."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from logitsmith.cluster.files import MissingFileError
from logitsmith.cluster.tasks import TaskResult

POISON, HANG = "poison", "hang"


@dataclass(frozen=True)
class EchoFactory:
    """Makes a service that answers each task with the task's content.

    Attributes:
        seconds: duration of a task.
        dies: whether the process is killed while the service is made.
        fails: whether making the service raises.
        hangs: whether making the service never ends.
        only_first: file that the first worker creates; all other workers fail. None: no worker fails.
        file: file whose text is the answer, on a node that does not have the file; None: answer with the content.
        note: the note of each worker.
    """

    seconds: float = 0.0
    dies: bool = False
    fails: bool = False
    hangs: bool = False
    only_first: Path | None = None
    file: Path | None = None
    note: str | None = None

    def __call__(self, find_file):
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails or (self.only_first is not None and not is_first(self.only_first)):
            raise ValueError("there is no model")
        if self.hangs:
            time.sleep(1000)
        if self.file is None:
            return Echo(self.seconds, note=self.note)
        if find_file.__self__.published_files is None:
            raise MissingFileError
        return Echo(self.seconds, find_file(self.file).read_text())


def is_first(path):
    """Return whether this call has created the file."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Echo:
    def __init__(self, seconds, text=None, note=None):
        self.seconds, self.text, self.note = seconds, text, note

    def facts(self):
        return {"pid": os.getpid(), "note": self.note}

    def serve(self, tasks, answer, progress):
        for task in tasks:
            if task is None:
                continue
            if task.content == POISON:
                os.kill(os.getpid(), signal.SIGKILL)
            if task.content == HANG:
                time.sleep(1000)
            time.sleep(self.seconds)
            progress(1)
            answer(TaskResult(task.key, task.content if self.text is None else self.text))

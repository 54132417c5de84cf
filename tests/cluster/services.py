"""Services that compute nothing, for the tests of what happens to workers."""

import os
import signal
import time
from dataclasses import dataclass

from logitsmith.cluster import TaskResult

POISON, HANG = "poison", "hang"


@dataclass(frozen=True)
class EchoFactory:
    """Makes a service that answers each task with its own content.

    ``dies``: its process ends while it starts; ``fails``: making it raises.
    """

    seconds: float = 0.0
    dies: bool = False
    fails: bool = False

    def __call__(self):
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            raise ValueError("there is no model")
        return Echo(self.seconds)


class Echo:
    def __init__(self, seconds):
        self.seconds = seconds

    def facts(self):
        return {"pid": os.getpid()}

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
            answer(TaskResult(task.key, task.content))

"""The options of commands that can compute on a cluster."""

from __future__ import annotations

from functools import partial

import typer

from .flag import Options, flag, options_class
from .limits import POSITIVE, at_least

_cluster = partial(flag, panel="Cluster")
_LOCAL, _PREFIX = "ray", "ray:"
_DEFAULT_STALL_SECONDS = 600.0


@options_class
class ClusterOptions(Options):
    """Where the work is done: in this process, or by workers of a Ray cluster."""

    on: str | None = _cluster(
        "--on", metavar="ray[:HOST[:PORT]]", help="ray: workers on this machine; ray:HOST: on that cluster."
    )
    workers: int | None = _cluster(
        "--workers", metavar="N", help="Workers, each with its own model. [as many as fit]", limit=at_least(1)
    )
    worker_cpus: int | None = _cluster(
        "--cpus-per-worker", metavar="N", help="CPUs and threads of each. [-t, or 2]", limit=at_least(1)
    )
    worker_gpus: float = _cluster(
        "--gpus-per-worker", metavar="N", help="GPUs of each; may be a part. [0]", default=0.0, limit=at_least(0)
    )
    stall_seconds: float = _cluster(
        "--stall",
        metavar="SECONDS",
        help="Replace a worker that makes no token for so long. [600]",
        default=_DEFAULT_STALL_SECONDS,
        limit=POSITIVE,
    )

    @property
    def address(self) -> str | None:
        """The head of the cluster, as HOST or HOST:PORT; None: a cluster on this machine."""
        return None if self.on is None or self.on == _LOCAL else self.on.removeprefix(_PREFIX)

    def check(self) -> None:
        """Refuse what cannot stand together."""
        if self.on is not None and self.on != _LOCAL and not (self.on.startswith(_PREFIX) and self.address):
            raise typer.BadParameter(f"--on: {self.on!r} is not ray, ray:HOST or ray:HOST:PORT")
        flags = {
            "--workers": self.workers is not None,
            "--cpus-per-worker": self.worker_cpus is not None,
            "--gpus-per-worker": bool(self.worker_gpus),
            "--stall": self.stall_seconds != _DEFAULT_STALL_SECONDS,
        }
        given = [name for name, is_given in flags.items() if is_given]
        if given and self.on is None:
            raise typer.BadParameter(f"{given[0]} goes with --on")

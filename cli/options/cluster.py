"""The options of commands that can compute on a cluster."""

from __future__ import annotations

from functools import partial

from ...common.errors import UsageError
from .flag import Options, flag, options_class
from .limits import POSITIVE, at_least

_cluster = partial(flag, panel="Cluster")
_LOCAL, _PREFIX = "ray", "ray:"
_DEFAULT_STALL_SECONDS = 600.0
_GPU_DECIMALS = 4
"""Of a part of a GPU: Ray knows no smaller parts."""
_MAX_PORT = 65_535


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
        if self.on is not None and self.on != _LOCAL:
            _check_place(self.on)
        if not _can_be_given(self.worker_gpus):
            raise UsageError(
                f"--gpus-per-worker: {self.worker_gpus:g} is neither a whole number nor a part of 1 "
                f"with at most {_GPU_DECIMALS} decimals"
            )
        flags = {
            "--workers": self.workers is not None,
            "--cpus-per-worker": self.worker_cpus is not None,
            "--gpus-per-worker": bool(self.worker_gpus),
            "--stall": self.stall_seconds != _DEFAULT_STALL_SECONDS,
        }
        given = [name for name, is_given in flags.items() if is_given]
        if given and self.on is None:
            raise UsageError(f"{given[0]} goes with --on")


def _check_place(text: str) -> None:
    """Refuse a value of ``--on`` that names no head of a cluster. Raises ``UsageError``."""
    address = text.removeprefix(_PREFIX)
    host, colon, port = address.rpartition(":") if ":" in address else (address, "", "")
    problem = f"--on: {text!r} is not ray, ray:HOST or ray:HOST:PORT"
    if (
        not text.startswith(_PREFIX)
        or not host.strip("[]")
        or any(sign in "/@" or sign.isspace() for sign in host)
    ):
        raise UsageError(problem)
    has_brackets = host.startswith("[") and host.endswith("]")
    if not has_brackets and any(sign in "[:]" for sign in host):
        raise UsageError(f"{problem}; an IPv6 address has brackets and a port, as ray:[::1]:6379")
    is_port = port.isascii() and port.isdecimal() and 1 <= int(port) <= _MAX_PORT
    if colon and not is_port:
        raise UsageError(f"--on: {text!r}: the port {port!r} is not within 1..{_MAX_PORT}")


def _can_be_given(gpus: float) -> bool:
    """True if Ray can give a worker so many GPUs: several only whole, of one also a part."""
    return gpus.is_integer() if gpus > 1 else gpus == round(gpus, _GPU_DECIMALS)

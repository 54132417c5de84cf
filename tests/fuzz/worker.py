"""Fuzzes one target: ``python -m tests.fuzz.worker TARGET SECONDS SEED FOLDER``; prints what it found as JSON.

With atheris, inputs that reach new code are kept and changed further; without it, all come from the seeds and from
each other.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
from importlib import import_module
from pathlib import Path
from time import process_time

try:
    import atheris
except ImportError:
    atheris = None

KEPT_INPUTS = 500
MOST_BYTES = 6 << 30
"""The address space of a worker: an input that asks for more gets a MemoryError, and the machine is left alone."""
SLOWER_BY = 2.5
HANG_SECONDS = 30
"""After so many processor seconds beyond its time a worker is ended: it hangs outside of Python."""


class Fuzzer:
    """Tries inputs until the processor time is up. ``last``: the file that holds the input that is tried."""

    def __init__(self, name: str, seconds: float, seed: int, folder: Path) -> None:
        if atheris:
            with atheris.instrument_imports(include=["logitsmith"]):
                targets = import_module("tests.fuzz.targets")
        else:
            targets = import_module("tests.fuzz.targets")
        from . import target as target_module

        if atheris:  # its counters make all slower; what is too slow then is tried without them once more
            target_module.MAX_SECONDS *= SLOWER_BY
        self.target, self._examine = targets.TARGETS[name], target_module.examine
        self._random = random.Random(seed)
        self._deadline = process_time() + seconds
        limit = int(self._deadline) + HANG_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        self._last = os.open(folder / f"{name}.last", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._folder = folder
        self.tried, self.findings = 0, {}
        self._kept = list(self.target.seeds)

    def try_one(self, data: bytes) -> None:
        """Try an input, and keep what it shows."""
        self.tried += 1
        os.ftruncate(self._last, 0)
        os.pwrite(self._last, data, 0)  # what a crash leaves behind
        finding = self._examine(self.target, data)
        if finding and len(data) < len(self.findings.get(finding.key, (data + b" ", ""))[0]):
            self.findings[finding.key] = (data, finding.detail)
        if process_time() > self._deadline:
            self.finish()

    def mutate(self, data: bytes, max_size: int = 60_000, seed: int | None = None) -> bytes:
        """Return another input; atheris calls this as well."""
        from .mutators import mutate

        chance = self._random if seed is None else random.Random(seed)
        if atheris and seed is not None and chance.random() < 0.2:
            return atheris.Mutate(data, max_size)
        if not data or chance.random() < 0.1:
            data = chance.choice(self._kept)
        return mutate(data, chance, self.target.words, self._kept)[:max_size]

    def finish(self) -> None:
        """Report, and end the process at once."""
        findings = []
        for key, (data, detail) in self.findings.items():
            path = self._folder / f"{self.target.name}-{abs(hash(key)) % 10**8}"
            path.write_bytes(data)
            findings.append({"key": key, "input": str(path), "detail": detail})
        print(json.dumps({"tried": self.tried, "seconds": process_time(), "findings": findings}))
        sys.stdout.flush()
        os._exit(0)

    def run(self) -> None:
        """Fuzz until the time is up."""
        for data in self.target.seeds:
            self.try_one(data)
        if atheris:
            corpus = self._folder / f"{self.target.name}.corpus"
            corpus.mkdir(exist_ok=True)
            for number, data in enumerate(self.target.seeds):
                (corpus / str(number)).write_bytes(data)
            arguments = [
                sys.argv[0],
                str(corpus),
                "-timeout=600",  # `examine` has its own
                "-rss_limit_mb=0",
                f"-artifact_prefix={self._folder}/",
                "-max_len=60000",
                "-verbosity=0",
            ]
            atheris.Setup(arguments, self.try_one, custom_mutator=self.mutate)
            atheris.Fuzz()
        while True:
            data = self.mutate(self._random.choice(self._kept))
            self.try_one(data)
            if self._random.random() < 0.02:
                self._kept = [*self.target.seeds, *self._kept[len(self.target.seeds) :][-KEPT_INPUTS:], data]


if __name__ == "__main__":
    Fuzzer(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])).run()

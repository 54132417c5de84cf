"""``python -m tests.fuzz [SECONDS] [TARGET…]``: SECONDS of processor time for all targets together.

Prints for each target how many inputs were tried, the seconds, and the findings, whose inputs stay in a folder.
In the name of a target, hyphens stand for blanks: ``score-lines``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import time_ns

from .target import TOO_SLOW, TOP
from .targets import TARGETS

_LEAST_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Fuzz; return 1 if there is a finding."""
    seconds = float(arguments[0]) if arguments else 60.0
    targets = {name.replace(" ", "-"): name for name in TARGETS}
    words = arguments[1:] or list(targets)
    unknown = [word for word in words if word not in targets]
    if unknown:
        print(f"unknown target {unknown[0]}; there are {', '.join(targets)}")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    found = tried = 0
    print(f"{'target':<16} {'inputs':>9} {'CPU s':>7} {'findings':>9}")
    for word in words:
        report = _fuzz(targets[word], max(_LEAST_SECONDS, seconds / len(words)), folder)
        findings = report["findings"]
        print(f"{word:<16} {report['tried']:>9,} {report['seconds']:>7.1f} {len(findings):>9}", flush=True)
        for finding in findings:
            print(f"    {finding['key']}\n    {finding['input']}")
            (folder / f"{Path(finding['input']).name}.txt").write_text(finding["detail"])
        found, tried = found + len(findings), tried + report["tried"]
    print(f"{tried:,} inputs, {found} findings" + (f"; what they did is in {folder}" if found else ""))
    return int(found > 0)


def _fuzz(name: str, seconds: float, folder: Path) -> dict:
    """Run one target's worker; its crash, and its hang outside of Python, are findings too."""
    command = [sys.executable, "-m", "tests.fuzz.worker", name, str(seconds), str(time_ns() % 2**32), str(folder)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        report = json.loads(lines[-1])
        report["findings"] = [finding for finding in report["findings"] if _is_confirmed(name, finding)]
        return report
    hung = done.returncode == -signal.SIGXCPU
    key = "the process hung" if hung else f"the process ended with {done.returncode}"
    detail = done.stderr.decode(errors="replace")[-3000:]
    last = folder / f"{name}.last"
    finding = {"key": key, "input": str(last), "detail": detail}
    return {"tried": 0, "seconds": seconds, "findings": [finding]}


def _is_confirmed(name: str, finding: dict) -> bool:
    """Whether an input that took too long does so without atheris, which makes all two to three times slower."""
    if finding["key"] != TOO_SLOW:
        return True
    command = [sys.executable, "-m", "tests.fuzz.replay", name, finding["input"]]
    return subprocess.run(command, cwd=TOP, capture_output=True, check=False).returncode != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

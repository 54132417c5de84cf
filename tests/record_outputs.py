"""Record what `gen` prints on a fixed list of invocations, and compare two records byte by byte.

A redesign must not change outputs by accident. Record before it, record after it, and compare:

    python -m tests.record_outputs record BEFORE --gen gen
    python -m tests.record_outputs record AFTER --gen gen
    python -m tests.record_outputs compare BEFORE AFTER

A record has a folder for each invocation, with the stdout, stderr and exit code of each command and the files that
the commands wrote. Parts that differ from run to run are replaced; `tests/recorded/placeholders.py` lists them.
Help texts are compared only with ``--help-too``. Compare records of one machine: another processor computes other
logits.

A change of wording is compared with ``--wording TABLE``. Each line of the table has an old and a new text, with a
tab between them. The old texts are replaced in the record BEFORE, and every line of the table must be used.
Several spaces or rules (─) in a row then count as one, since columns are as wide as their longest text.
"""

import argparse
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from .recorded.api import serve
from .recorded.invocations import INVOCATIONS
from .recorded.placeholders import with_placeholders

INPUTS = Path(__file__).parent / "recorded" / "inputs"
SECONDS = 300
"""A command that takes longer is stuck; the slowest takes ten seconds on a free machine."""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.record_outputs", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the invocations and write what they print")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--gen", default=f"{sys.executable} -m logitsmith.cli", help="the command to run")
    recording.add_argument("--only", default="*", metavar="PATTERN", help="only these ids, such as 'batch-*'")
    recording.add_argument("--jobs", type=int, default=1, help="how many run at a time")
    comparing = commands.add_parser("compare", help="print how two records differ; exit code 1 if they do")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--help-too", action="store_true", help="compare the help texts as well")
    comparing.add_argument("--wording", type=Path, metavar="TABLE", help="old and new texts, as above")
    options = parser.parse_args()
    if options.command == "record":
        record(options.folder, shlex.split(options.gen), options.only, options.jobs)
        return 0
    return compare(options.before, options.after, options.help_too, read_wording(options.wording))


def record(folder, gen, pattern="*", jobs=1):
    """Run the invocations whose ids fit, and write a folder for each."""
    chosen = [name for name in INVOCATIONS if fnmatch(name, pattern)]
    with serve() as api, ThreadPoolExecutor(jobs) as pool:
        for number, name in enumerate(pool.map(lambda name: _record(name, folder / name, gen, api), chosen), 1):
            print(f"{number} of {len(chosen)}: {name}", file=sys.stderr, flush=True)


def _record(name, target, gen, api):
    """Run the commands of one invocation in a folder of their own."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="gen-") as temporary:
        folder = Path(temporary).resolve()
        work = folder / "work"
        shutil.copytree(INPUTS, work)
        before = _files(work)
        for number, line in enumerate(INVOCATIONS[name].strip().splitlines(), 1):
            _run(line, gen, api, folder, target / str(number))
        for path, data in sorted(_files(work).items()):
            if before.get(path) != data:
                kept = target / "files" / path
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(_described(data, folder) if kept.suffix == ".npz" else _normalized(data, folder))
    return name


def _run(line, gen, api, folder, target):
    """Run one command; write what it prints and its exit code beside ``target``."""
    words = [word.replace("$PWD", str(folder / "work")).replace("$API", api) for word in shlex.split(line)]
    environment = _environment(folder)
    while words[0] != "gen":
        key, _, value = words.pop(0).partition("=")
        environment[key] = value
    stdin = b""
    if "<" in words:
        at = words.index("<")
        stdin = (folder / "work" / words[at + 1]).read_bytes()
        words = words[:at]
    done = subprocess.run(
        [*gen, *words[1:]],
        input=stdin,
        capture_output=True,
        cwd=folder / "work",
        env=environment,
        timeout=SECONDS,
        check=False,
    )
    target.with_suffix(".stdout").write_bytes(_normalized(done.stdout, folder))
    target.with_suffix(".stderr").write_bytes(_normalized(done.stderr, folder))
    target.with_suffix(".code").write_text(f"{done.returncode}\n")


def _environment(folder):
    """The variables of a command: no user's settings, one thread for each library."""
    inherited = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH") if key in os.environ}
    homes = {
        "HOME": "home",
        "XDG_CONFIG_HOME": "home/.config",
        "XDG_DATA_HOME": "home/.local/share",
        "XDG_CACHE_HOME": "home/.cache",
    }
    fixed = {
        "COLUMNS": "100",
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "OMP_WAIT_POLICY": "passive",
        "OPENBLAS_NUM_THREADS": "1",
        "TERM": "dumb",
        "TZ": "UTC",
    }
    return {**inherited, **{key: str(folder / path) for key, path in homes.items()}, **fixed}


def _files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _described(data, folder):
    """Return an .npz as text: texts as they are; type, shape and digest of other arrays."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        lines = [f"{name}: {_described_array(arrays[name])}\n" for name in sorted(arrays)]
    return _normalized("".join(lines).encode(), folder)


def _described_array(array):
    if array.dtype.kind == "U":
        return str(array)
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _normalized(data, folder):
    return with_placeholders(data.decode(errors="surrogateescape"), folder).encode(errors="surrogateescape")


def read_wording(path):
    """Return the new text of each old text in a table; longer old texts come first. Without a table, no texts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    pairs = (line.split("\t") for line in lines if line)
    return dict(sorted(pairs, key=lambda pair: -len(pair[0])))


def _narrowed(data):
    """Replace several spaces or rules in a row by one."""
    text = data.decode(errors="surrogateescape")
    narrowed = re.sub(r"(?<=\S) {2,}|(?<=─)─+", lambda found: found[0][:1].strip("─"), text)
    return narrowed.encode(errors="surrogateescape")


def _reworded(data, wording, unused):
    """Replace the old texts in one pass, and remove those that were found from ``unused``."""

    def new_text(found):
        unused.discard(found[0])
        return wording[found[0]]

    text = data.decode(errors="surrogateescape")
    return re.sub("|".join(map(re.escape, wording)), new_text, text).encode(errors="surrogateescape")


def compare(before, after, help_too=False, wording=None):
    """Print a unified diff for each file that differs. Returns 1 if any does, else 0.

    ``wording``: new texts by old ones. An old text that is not found counts as a difference.
    """
    unused = set(wording or ())
    old, new = _files(before), _files(after)
    if wording:
        old, new = ({path: _narrowed(data) for path, data in files.items()} for files in (old, new))
    for path, data in old.items():
        if wording and data != new.get(path):
            old[path] = _reworded(data, wording, unused)
    for folder, files in ((before, old), (after, new)):
        if not files:
            sys.exit(f"{folder}: there is no record")
    differing = set()
    for path in sorted(old.keys() | new.keys()):
        name = path.split("/")[0]
        if old.get(path) == new.get(path) or (name.startswith("help-") and not help_too):
            continue
        differing.add(name)
        texts = [files.get(path, b"").decode(errors="replace").splitlines(keepends=True) for files in (old, new)]
        labels = [_label(before, path, old), _label(after, path, new)]
        for line in unified_diff(*texts, *labels):
            print(line if line.endswith("\n") else line + "\n\\ no newline at the end\n", end="")
    for text in sorted(unused):
        print(f"not needed: {text!r}")
    count = len({path.split("/")[0] for path in old.keys() | new.keys()})
    print(f"{len(differing)} of {count} invocations differ")
    return 1 if differing or unused else 0


def _label(folder, path, files):
    return f"{folder / path}{'' if path in files else ' (missing)'}"


if __name__ == "__main__":
    sys.exit(main())

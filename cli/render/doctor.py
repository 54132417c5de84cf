"""What `gen doctor` found, as a page of text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .run import terminal_safe

_INDENT = 2
_NAME_COLUMNS = 18
_MAX_WIDTH = 78
_MIN_WIDTH_OF_TWO_COLUMNS = 60
_GIB, _MIB = 2**30, 2**20


def page(report: Mapping[str, Any]) -> str:
    """Return the page, wrapped so that it can be pasted, and fits a narrow terminal; problems stand last."""
    lines = [*_versions(report), *_machine(report), *_folders(report), *_names(report), *_model(report)]
    return terminal_safe("".join(f"{line}\n" for line in (*lines, *_problems(report["problems"]))), sys.stdout)


def _versions(report: Mapping[str, Any]) -> Iterator[str]:
    yield "Versions"
    for name, installed in report["versions"].items():
        yield from _row("gen" if name == "logitsmith" else name, installed or "not installed")
    build = report["llama_cpp"]
    yield "llama.cpp"
    if build is None:
        yield from _row("state", "cannot be loaded")
        return
    yield from _row("ggml", build["ggml_version"] or "unknown")
    yield from _row("built for", build["system_info"].replace(" = ", "="))  # a line may end at each space
    yield from _row("devices", "; ".join(build["devices"]) or "unknown")
    yield from _row("GPU", "yes" if build["has_gpu"] else "no")
    yield from _row("threads of a run", str(build["default_threads"]))


def _machine(report: Mapping[str, Any]) -> Iterator[str]:
    machine = report["machine"]
    yield "Machine"
    yield from _row("system", machine["system"])
    yield from _row("CPU", machine["cpu"])
    yield from _row("hardware threads", f"{machine['hardware_threads']}, {machine['usable_threads']} for gen")
    total, available = machine["memory_bytes"], machine["available_memory_bytes"]
    memory = "unknown" if total is None else f"{total / _GIB:.1f} GiB"
    yield from _row("memory", memory if available is None else f"{memory}, {available / _GIB:.1f} available")


def _folders(report: Mapping[str, Any]) -> Iterator[str]:
    yield "Searched, in this order"
    for folder in report["folders"]:
        yield from _row(folder["of"], f"{folder['path']}{'' if folder['exists'] else ' (not there)'}")


def _names(report: Mapping[str, Any]) -> Iterator[str]:
    for title in ("presets", "grammars", "models"):
        yield title.capitalize()
        names_by_origin: dict[str, list[str]] = {}
        for entry in report[title]:
            hidden = " (hidden)" if entry.get("is_hidden") else ""
            names_by_origin.setdefault(entry["origin"], []).append(f"{entry['name']}{hidden}")
        for origin, names in names_by_origin.items():
            yield from _row(origin, ", ".join(names))
        if title == "presets":
            yield from _row("without -P", report["default_preset"])
    if report["plugins"]:
        yield "Samplers of plug-ins"
        for plugin in report["plugins"]:
            yield from _row(plugin["name"], plugin["from"])


def _model(report: Mapping[str, Any]) -> Iterator[str]:
    model = report["model"]
    yield "Model of a run without -m"
    if model is None:
        yield from _row("file", "none")
        return
    yield from _row("file", model["path"])
    yield from _row("from", model["origin"])
    if model["size_bytes"] is not None:
        yield from _row("size", f"{model['size_bytes'] / _MIB:,.0f} MiB")


def _problems(problems: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if not problems:
        yield "Nothing is wrong."
        return
    yield "Wrong"
    for number, entry in enumerate(problems, start=1):
        yield from _row(str(number), entry["problem"])
        yield from _row("", f"What to do: {entry['advice']}")


def _row(name: str, value: str) -> Iterator[str]:
    """A name and its value, wrapped behind the name, or below it; long words such as paths are not cut."""
    from shutil import get_terminal_size
    from textwrap import wrap

    width = min(get_terminal_size().columns, _MAX_WIDTH)
    start = f"{' ' * _INDENT}{name:{_NAME_COLUMNS}}"
    is_narrow = width < _MIN_WIDTH_OF_TWO_COLUMNS
    after = " " * (2 * _INDENT if is_narrow else _INDENT + _NAME_COLUMNS)
    if len(name) >= _NAME_COLUMNS or (is_narrow and name and len(start) + len(value) > width):
        yield start.rstrip()
        start = after
    for part, line in enumerate(value.splitlines() or [""]):
        yield from wrap(
            line,
            width,
            initial_indent=after if part else start,
            subsequent_indent=after,
            break_long_words=False,
            break_on_hyphens=False,
        )

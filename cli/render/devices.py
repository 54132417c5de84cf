"""The list of GPUs, as `--list-devices` prints it."""

from __future__ import annotations

import sys

from ..text import terminal_safe


def print_devices() -> None:
    """Print the GPUs to stdout, in llama.cpp's form."""
    from ...engine.native.devices import list_devices

    lines = ["Available devices:"]
    for device in list_devices():
        memory = f"{device.total_bytes >> 20} MiB, {device.free_bytes >> 20} MiB free"
        lines.append(f"  {device.name}: {device.description} ({memory})")
    if len(lines) == 1:
        lines.append("  (none)")
    print(terminal_safe("\n".join(lines), sys.stdout))

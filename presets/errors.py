"""The error of presets. The module imports little, because completion in shells needs it to find presets."""

from __future__ import annotations

from typing import ClassVar

from ..common.errors import LogitsmithError


class PresetError(LogitsmithError, ValueError):
    """A preset, a setting or a configuration that cannot be used.

    The message names the file or the flag, the place in it, the value, and the allowed values.
    """

    exit_code: ClassVar[int] = 2

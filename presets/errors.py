"""The one exception of this room."""

from __future__ import annotations

from typing import ClassVar

from ..common.errors import LogitsmithError


class PresetError(LogitsmithError, ValueError):
    """A preset, a setting or a configuration that cannot be used.

    The message names the file or the flag, the place in it, what is allowed, and what came.
    """

    exit_code: ClassVar[int] = 2

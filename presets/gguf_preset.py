"""The settings that a model's author recommends, from the GGUF's ``general.sampling.*`` keys."""

from __future__ import annotations

from collections.abc import Mapping

from .foreign.importing import import_metadata
from .preset import Preset


def preset_from_metadata(metadata: Mapping[str, str]) -> Preset | None:
    """Return llama.cpp's whole chain with the values that a model's author put into the GGUF, or None.

    It is the preset of `import_metadata`, which also returns what could not be carried over. Raises
    ``PresetError`` that names the key, for a value that cannot be used.
    """
    imported = import_metadata(metadata)
    return None if imported is None else imported.preset

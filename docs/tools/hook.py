"""MkDocs calls this when it collects the files of the manual."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.tools.pages import generated_pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files

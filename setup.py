"""Puts the manual pages into the wheel, below share/man; everything else stands in pyproject.toml."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]  # this checkout, even if another version is installed


class BuildManPages(Command):
    """Makes the manual pages from the declarations of the flags."""

    description = "make the manual pages"
    user_options: list[tuple[str, str, str]] = []  # noqa: RUF012 - setuptools reads it

    def initialize_options(self) -> None:
        """Take no options of its own."""
        self.build_temp: str | None = None

    def finalize_options(self) -> None:
        """Write where the build keeps what it needs for a while."""
        self.set_undefined_options("build", ("build_temp", "build_temp"))

    def run(self) -> None:
        """Write the pages, and name them as data of the wheel."""
        folder = Path(self.build_temp or "build") / "man"
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        man_pages = import_module("tools.man_pages").man_pages
        for name, page in man_pages(self.distribution.get_version()).items():
            path = folder / name
            path.write_text(page, encoding="utf-8")
            files.append(str(path))
        self.distribution.data_files = [*(self.distribution.data_files or []), ("share/man/man1", sorted(files))]


class Build(build):
    """The build, with the manual pages."""

    sub_commands = [*build.sub_commands, ("build_man_pages", None)]  # noqa: RUF012 - setuptools reads it


setup(cmdclass={"build": Build, "build_man_pages": BuildManPages})

"""The fields of a request that give a story's memory, author's note and world info."""

from __future__ import annotations

from typing import Any

from .errors import InvalidFieldError
from .story import AuthorsNote, Story, WorldInfo
from .strict_model import Json, StrictModel
from .world_info_files import read_world_info


class StoryFields(StrictModel):
    """The fields of a body or of a line that give a story's memory, author's note and world info.

    ``world_info``: entries, an object that has them, or a file of another tool, see `read_world_info`.
    """

    memory: str | None = None
    authors_note: AuthorsNote | None = None
    world_info: Json | list[Any] | None = None

    def story(self, unused: list[str]) -> Story | None:
        """Return what the fields give; None if there are none. Paths of parts without effect go to ``unused``."""
        # Raises ``InvalidFieldError``.
        if self.memory is None and self.authors_note is None and self.world_info is None:
            return None
        world_info = WorldInfo()
        if self.world_info is not None:
            try:
                world_info, remarks = read_world_info(self.world_info)
            except InvalidFieldError as error:
                raise InvalidFieldError(error.problem, ("world_info", *error.place)) from None
            unused += [f"world_info.{remark.place}" for remark in remarks]
        return Story(self.memory or "", self.authors_note or AuthorsNote(), world_info)

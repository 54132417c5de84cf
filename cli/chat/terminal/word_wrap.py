"""Wraps what is typed between words. prompt_toolkit alone wraps at the last column, within words."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.utils import get_cwidth

_WORD = re.compile(r"\S+\s?|\s")
"""A word with the space after it: a row does not begin with that space."""


class WordWrap(Processor):
    """Fills a row with spaces where the next word would not fit. They are only shown, and not part of the text."""

    def __init__(self, mark_width: Callable[[int], int], further_mark_width: int) -> None:
        """Prepare it.

        Args:
            mark_width: from the number of a line, counted from 0, to the width of the mark before its first row.
            further_mark_width: the width of the mark before each further row.
        """
        self._mark_width, self._further_mark_width = mark_width, further_mark_width

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return the line with these spaces, and from each place in one text the place in the other."""
        fragments = transformation_input.fragments
        text = fragment_list_to_text(fragments)
        first_width = transformation_input.width - self._mark_width(transformation_input.lineno)
        if len(text) < first_width and get_cwidth(text) < first_width:
            return Transformation(fragments)
        row_width = transformation_input.width - self._further_mark_width
        places, sums, total = [], [0], 0
        for place, spaces in _fillers(text, first_width, row_width):
            total += spaces
            places.append(place)
            sums.append(total)
        if not places:
            return Transformation(fragments)
        characters = explode_text_fragments(fragments)
        filled = []
        for number, place in enumerate(places):
            start = places[number - 1] if number else 0
            filled += [*characters[start:place], ("", " " * (sums[number + 1] - sums[number]))]
        filled += characters[places[-1] :]
        shown_places = [place + sums[number + 1] for number, place in enumerate(places)]

        def source_to_display(place: int) -> int:
            return place + sums[bisect_right(places, place)]

        def display_to_source(place: int) -> int:
            number = bisect_right(shown_places, place)
            following = places[number] if number < len(places) else place
            return min(place - sums[number], following)

        return Transformation(filled, source_to_display, display_to_source)


def _fillers(text: str, first_width: int, row_width: int) -> Iterator[tuple[int, int]]:
    """Yield the place of each word that has to begin a row, and how many spaces fill the row before it."""
    column, width = 0, first_width
    for match in _WORD.finditer(text):
        size = get_cwidth(match[0])
        if column and column + size > width and size <= row_width:
            yield match.start(), width - column
            column, width = 0, row_width
        if column + size <= width:
            column += size
            continue
        for character in match[0]:  # a word that is longer than a row is divided
            size = get_cwidth(character)
            if column + size > width:
                column, width = 0, row_width
            column += size

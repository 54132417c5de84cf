"""The search for bans in a text that is generated: matches, and the text that may still become one.

Phrases are searched in tries, with one thread for each start that may still become a phrase, and regular
expressions in automata. States are never changed in place, so that a saved state is a reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .bans import MAX_MATCH_CHARACTERS, TextBan, regex_of
from .linear_regex import NO_THREADS, LinearRegex, Threads, is_word_character


class BanMatch(NamedTuple):
    """A match of a ban."""

    start: int  # position of the first character of the match in the text
    ban_index: int  # index of the ban


@dataclass(slots=True)
class _TrieNode:
    """The beginning of phrases."""

    following: dict[str, _TrieNode] = field(default_factory=dict)  # the node after each character
    ban_index: int | None = None  # index of the first ban whose phrase ends here; None if no phrase ends here


@dataclass(frozen=True, slots=True)
class _Trie:
    """The phrases with the same rules."""

    root: _TrieNode  # the node before the first character
    folds_case: bool
    whole_words: bool


# the starts that may still become a phrase, in ascending order, each with the node that the text reached
_PhraseThreads = tuple[tuple[int, _TrieNode], ...]


class ScannerState(NamedTuple):
    """The state of a `BanScanner`."""

    position: int  # number of characters so far
    last_character: str  # the last character; empty at the beginning
    phrase_threads: tuple[_PhraseThreads, ...]  # for each trie, the live starts
    regex_threads: tuple[Threads, ...]  # for each regex, its threads


class BanScanner:
    """A search for bans, which is given a text in parts."""

    def __init__(self, bans: Sequence[TextBan]) -> None:
        tries: dict[tuple[bool, bool], _Trie] = {}
        self._regexes: list[tuple[int, LinearRegex]] = []
        for index, ban in enumerate(bans):
            if ban.is_regex:
                self._regexes.append((index, regex_of(ban)))
                continue
            rules = ban.ignores_case, ban.whole_words
            trie = tries.setdefault(rules, _Trie(_TrieNode(), *rules))
            _add_phrase(trie.root, ban.text.casefold() if ban.ignores_case else ban.text, index)
        self._tries = list(tries.values())
        # the state after the text so far, which may be saved, and set again
        self.state = ScannerState(0, "", tuple(() for _ in self._tries), tuple(NO_THREADS for _ in self._regexes))

    def live_starts(self) -> set[int]:
        """Return the positions at which a match may begin that later text completes."""
        starts = {start for threads in self.state.phrase_threads for start, _ in threads}
        for (_, regex), threads in zip(self._regexes, self.state.regex_threads, strict=True):
            if threads:
                starts.update(regex.live_starts(threads))
        return starts

    def push(self, text: str) -> list[BanMatch]:
        """Append text; return the matches that it completed, also those that ended before and are decided now."""
        matches: list[BanMatch] = []
        position, before = self.state.position, self.state.last_character
        phrase_threads, regex_threads = self.state.phrase_threads, self.state.regex_threads
        for character in text:
            min_start = position + 1 - MAX_MATCH_CHARACTERS
            phrase_threads = tuple(
                [
                    _step_phrases(trie, threads, before, character, position, matches)
                    for trie, threads in zip(self._tries, phrase_threads, strict=True)
                ]
            )
            if self._regexes:
                regex_threads = tuple(
                    [
                        _step_regex(regex, threads, before, character, position, min_start, matches)
                        for regex, threads in zip(self._regexes, regex_threads, strict=True)
                    ]
                )
            before = character
            position += 1
        self.state = ScannerState(position, before, phrase_threads, regex_threads)
        return matches

    def end(self) -> list[BanMatch]:
        """Return the matches that the end of the text decides. The state is not changed."""
        return list(self._matches_at_end())

    def _matches_at_end(self) -> Iterator[BanMatch]:
        for trie, threads in zip(self._tries, self.state.phrase_threads, strict=True):
            if trie.whole_words:
                for start, node in threads:
                    if node.ban_index is not None:
                        yield BanMatch(start, node.ban_index)
        for (index, regex), regex_threads in zip(self._regexes, self.state.regex_threads, strict=True):
            late_start = regex.late_match_start(regex_threads, self.state.last_character, "")
            if late_start is not None:
                yield BanMatch(late_start, index)


def _add_phrase(root: _TrieNode, phrase: str, index: int) -> None:
    node = root
    for character in phrase:
        node = node.following.setdefault(character, _TrieNode())
    if node.ban_index is None:
        node.ban_index = index


def _step_phrases(  # noqa: PLR0913, PLR0917 - called for each character; an object would take time
    trie: _Trie, threads: _PhraseThreads, before: str, character: str, position: int, matches: list[BanMatch]
) -> _PhraseThreads:
    """Return the threads of a trie after one more character, and add the matches."""
    folded = character.casefold() if trie.folds_case else character
    has_start = folded[0] in trie.root.following or len(folded) > 1
    if trie.whole_words:
        if threads and not is_word_character(character):  # decides about phrases that end before this character
            matches += (BanMatch(start, node.ban_index) for start, node in threads if node.ban_index is not None)
        has_start = has_start and not is_word_character(before)
    if not threads and not has_start:
        return ()
    stepped: list[tuple[int, _TrieNode]] = []
    for start, node in threads:
        _follow(trie, start, node, folded, stepped, matches)
    if has_start:
        for first in range(len(folded)):  # a phrase may begin inside a character that folds to several
            _follow(trie, position, trie.root, folded[first:], stepped, matches)
    return tuple(stepped)


def _follow(  # noqa: PLR0913, PLR0917 - called for each character; an object would take time
    trie: _Trie,
    start: int,
    node: _TrieNode,
    characters: str,
    stepped: list[tuple[int, _TrieNode]],
    matches: list[BanMatch],
) -> None:
    """Follow a start by the folded characters of one character; add the thread if it may still become a phrase."""
    for number, character in enumerate(characters, 1):
        next_node = node.following.get(character)
        if next_node is None:
            return
        node = next_node
        is_inside = number < len(characters)
        if node.ban_index is not None and not trie.whole_words:
            matches.append(BanMatch(start, node.ban_index))
        if is_inside and not node.following:
            return
    if node.following or trie.whole_words:
        stepped.append((start, node))


def _step_regex(  # noqa: PLR0913, PLR0917 - called for each character; an object would take time
    numbered_regex: tuple[int, LinearRegex],
    threads: Threads,
    before: str,
    character: str,
    position: int,
    min_start: int,
    matches: list[BanMatch],
) -> Threads:
    """Return the threads of a regex after one more character, and add the matches; see `LinearRegex.step`."""
    index, regex = numbered_regex
    if threads:
        late_start = regex.late_match_start(threads, before, character)
        if late_start is not None:
            matches.append(BanMatch(late_start, index))
    stepped = regex.step(threads, before, character, position, min_start)
    start = regex.match_start(stepped) if stepped else None
    if start is not None:
        matches.append(BanMatch(start, index))
    return stepped

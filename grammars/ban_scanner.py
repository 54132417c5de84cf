"""The search for bans in a text that is generated. It finds matches, and text that may still become a match.

Phrases are searched in tries, with one thread for each place at which a phrase may have begun. Regular expressions
are searched in automata. States are never changed in place, so that a state is saved without a copy.
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


# The live threads of a trie: the position at which a phrase may have begun, and the node that the text after this
# position reached. Sorted by the position.
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
            rules = (ban.ignores_case, ban.whole_words)
            if rules not in tries:
                tries[rules] = _Trie(_TrieNode(), folds_case=ban.ignores_case, whole_words=ban.whole_words)
            phrase = ban.text.casefold() if ban.ignores_case else ban.text
            _add_phrase(tries[rules].root, phrase, index)
        self._tries = list(tries.values())
        # The state after the text so far. A caller may save it, and later set it again.
        self.state = ScannerState(
            position=0,
            last_character="",
            phrase_threads=((),) * len(self._tries),
            regex_threads=(NO_THREADS,) * len(self._regexes),
        )

    def live_starts(self) -> set[int]:
        """Return the positions at which a match may begin that later text completes."""
        starts = {start for threads in self.state.phrase_threads for start, _ in threads}
        for (_, regex), threads in zip(self._regexes, self.state.regex_threads, strict=True):
            if threads:
                starts.update(regex.live_starts(threads))
        return starts

    def push(self, text: str) -> list[BanMatch]:
        """Append text, and return the matches that are certain now."""
        # A match may have ended before this text, if its condition depends on the next character.
        matches: list[BanMatch] = []
        position, before, phrase_threads, regex_threads = self.state
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
    # Some characters, such as ß, fold to several characters. A phrase may begin with any of them.
    may_begin = folded[0] in trie.root.following or len(folded) > 1
    if trie.whole_words:
        if threads and not is_word_character(character):  # a phrase that ended before this character is a match
            matches += (BanMatch(start, node.ban_index) for start, node in threads if node.ban_index is not None)
        may_begin = may_begin and not is_word_character(before)
    if not threads and not may_begin:
        return ()
    stepped: list[tuple[int, _TrieNode]] = []
    for start, node in threads:
        _follow(trie, start, node, folded, stepped, matches)
    if may_begin:
        for folded_start in range(len(folded)):
            _follow(trie, position, trie.root, folded[folded_start:], stepped, matches)
    return tuple(stepped)


def _follow(  # noqa: PLR0913, PLR0917 - called for each character; an object would take time
    trie: _Trie,
    start: int,
    node: _TrieNode,
    characters: str,
    stepped: list[tuple[int, _TrieNode]],
    matches: list[BanMatch],
) -> None:
    """Follow a thread by the folded characters of one character, and add it if a phrase may still match."""
    for character in characters:
        next_node = node.following.get(character)
        if next_node is None:
            return
        node = next_node
        if node.ban_index is not None and not trie.whole_words:
            matches.append(BanMatch(start, node.ban_index))
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

"""The guard of a text: it finds bans and loops, holds back what may become one, and decides where to go back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from ..grammars.ban_scanner import BanMatch, BanScanner, ScannerState
from ..grammars.bans import TextBan
from ..samplers.loop_guard import LoopDetector, LoopState
from .text_rules import TextRules


class Verdict(NamedTuple):
    """A decision because of a ban or a loop."""

    # index of the token to go back to, which is dropped with all later ones; None: no token is dropped
    place: int | None = None
    ban: TextBan | None = None
    attempt: int = 0  # number of times that the text has returned to this token, counted from 1
    finish_reason: str | None = None  # the reason with which the text ends there; None: it does not end
    ends_phase: bool = False  # whether the phase of thinking ends


class GuardState(NamedTuple):
    """The state of a `TextGuard` before a token."""

    scanner: ScannerState
    loop: LoopState | None
    character_count: int
    # index of the token with the first byte of an incomplete character; None if there is none
    incomplete_token: int | None
    loop_period: int | None


class TextGuard:
    """The search for bans and loops in one text, and the places to which the text has returned."""

    def __init__(self, rules: TextRules) -> None:
        self.rules = rules
        # the period of the loop that ended the text or its phase; None if there was none
        self.loop_period: int | None = None
        self._scanner = BanScanner(rules.bans)
        self._loops = None if rules.loop_guard is None else LoopDetector(rules.loop_guard)
        # For each complete character, the index of the token with its first byte
        self._character_tokens: list[int] = []
        self._incomplete_token: int | None = None
        self._attempts: dict[int, int] = {}
        self._dropped_tokens: dict[int, list[int]] = {}
        self._forced_indices: set[int] = set()

    def save(self) -> GuardState:
        loop = None if self._loops is None else self._loops.state
        character_count = len(self._character_tokens)
        return GuardState(self._scanner.state, loop, character_count, self._incomplete_token, self.loop_period)

    def restore(self, state: GuardState, index: int) -> None:
        """Return to the state before a token. Drops and attempts of later tokens are forgotten."""
        self._scanner.state = state.scanner
        self._incomplete_token = state.incomplete_token
        self.loop_period = state.loop_period
        if self._loops is not None and state.loop is not None:
            self._loops.state = state.loop
        del self._character_tokens[state.character_count :]
        self._forced_indices = {forced for forced in self._forced_indices if forced < index}
        self._attempts = {place: count for place, count in self._attempts.items() if place <= index}
        self._dropped_tokens = {place: ids for place, ids in self._dropped_tokens.items() if place <= index}

    def dropped_at(self, index: int) -> Collection[int]:
        return self._dropped_tokens.get(index, ())

    def record_return(self, index: int, token: int) -> None:
        """Record that the text has returned to a place, and dropped a token there."""
        self._attempts[index] = self._attempts.get(index, 0) + 1
        self._dropped_tokens.setdefault(index, []).append(token)

    def review(  # noqa: PLR0913 - the facts about one token
        self,
        index: int,
        token: int,
        text: str,
        *,
        has_incomplete_character: bool,
        is_forced: bool,
        first_held: int,
        can_end_phase: bool,
    ) -> Verdict | None:
        """Add one token with the characters it completed, and return what happens because of it."""
        if is_forced:
            self._forced_indices.add(index)
        self._record_characters(index, len(text), has_incomplete_character)
        verdict = self._judge_bans(self._scanner.push(text), first_held) if text else None
        period = None if self._loops is None else self._loops.push(token)
        if verdict is not None or period is None:
            return verdict
        return self._judge_loop(period, first_held, can_end_phase)

    def review_end(self, first_held: int) -> Verdict | None:
        """Return what happens because the text ends, which decides about whole words."""
        return self._judge_bans(self._scanner.end(), first_held)

    def review_banned_end(self) -> Verdict | None:
        """Return what happens because a ban has ended the text: its new end may complete a word that is banned."""
        if self.rules.ban_then == "keep":
            return None
        for start, ban_index in sorted(self._scanner.end()):
            place = self._character_tokens[start]
            if place not in self._forced_indices:
                return Verdict(place, self.rules.bans[ban_index], self._attempts.get(place, 0) + 1, "banned")
        return None

    def open_places(self) -> tuple[int, ...]:
        """Return the indices of the tokens to which the text returns if later text completes a match or a loop."""
        places: set[int] = set()
        if self.rules.bans:
            places = {self._character_tokens[start] for start in self._scanner.live_starts()}
            if self._incomplete_token is not None:
                places.add(self._incomplete_token)
        guard = self.rules.loop_guard
        if self._loops is not None and guard is not None and guard.action == "rewind":
            places |= self._loops.live_starts()
        return tuple(places)

    def first_undecided(self, next_index: int, places_before: Callable[[int], Sequence[int]]) -> int:
        """Return the index of the first token that must be held back."""
        # After a return to a token, another token there may complete a match that began earlier. So the tokens
        # that were undecided before that token are held back with it.
        places = _close(self.open_places(), places_before)
        if self.rules.bans and self.rules.ban_then == "step_back":
            places = _close({*places, *(place - 1 for place in places), next_index - 1}, places_before)
        return min(places, default=next_index)

    def _record_characters(self, index: int, character_count: int, has_incomplete_character: bool) -> None:
        if character_count:
            first_token = index if self._incomplete_token is None else self._incomplete_token
            self._character_tokens += [first_token, *[index] * (character_count - 1)]
            self._incomplete_token = None
        if has_incomplete_character and self._incomplete_token is None:
            self._incomplete_token = index
        elif not has_incomplete_character:
            self._incomplete_token = None

    def _judge_bans(self, matches: Iterable[BanMatch], first_held: int) -> Verdict | None:
        for start, ban_index in sorted(matches):
            place = self._character_tokens[start]
            ban = self.rules.bans[ban_index]
            if place in self._forced_indices:
                continue  # the text of a phase's end was given by the user, and nothing else can be drawn there
            attempt = self._attempts.get(place, 0) + 1
            if attempt <= self.rules.ban_retries:
                return Verdict(place, ban, attempt)
            if self.rules.ban_then == "keep":
                continue
            if self.rules.ban_then == "step_back":
                earlier_place = self._place_before(place, first_held)
                if earlier_place is not None:
                    return Verdict(earlier_place, ban, self._attempts.get(earlier_place, 0) + 1)
            return Verdict(place, ban, attempt, "banned")
        return None

    def _place_before(self, place: int, first_held: int) -> int | None:
        """Return the nearest earlier place with retries left; None if there is none among the held tokens."""
        for earlier_place in range(place - 1, first_held - 1, -1):
            if earlier_place in self._forced_indices:
                return None
            if self._attempts.get(earlier_place, 0) < max(self.rules.ban_retries, 1):
                return earlier_place
        return None

    def _judge_loop(self, period: int, first_held: int, can_end_phase: bool) -> Verdict:
        action = self._loop_action
        self.loop_period = period
        if action == "end-thinking" and can_end_phase:
            return Verdict(ends_phase=True)
        if action == "rewind" and self._loops is not None:
            place = self._loops.second_block_start(period)
            attempt = self._attempts.get(place, 0) + 1
            is_open = place >= first_held and place not in self._forced_indices
            if attempt <= self.rules.ban_retries and is_open:
                self.loop_period = None
                return Verdict(place, None, attempt)
        return Verdict(finish_reason="loop")

    @property
    def _loop_action(self) -> str:
        return "stop" if self.rules.loop_guard is None else self.rules.loop_guard.action


def _close(places: Iterable[int], places_before: Callable[[int], Sequence[int]]) -> set[int]:
    """Return the places and those that are open at one of them; see `TextGuard.first_undecided`."""
    closed: set[int] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if place not in closed:
            closed.add(place)
            waiting += places_before(place)
    return closed

"""The flags of bans, of the loop guard, of the phases of a text, of token healing, and of guidance."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import UsageError
from ...common.flags import CompletionKind, OptionalValue, at_least
from ..flags import Options, flag

if TYPE_CHECKING:
    from ...presets.overrides import Override

_ban = partial(flag, panel="Bans and loops")
_phase = partial(flag, panel="Reasoning")
_guidance = partial(flag, panel="Guidance")

_MAX_BAN_FILE_BYTES = 4_000_000
_MAX_PROMPT_BYTES = 64_000_000


@dataclass(frozen=True, kw_only=True)
class GuidanceOptions(Options):
    """The flags of classifier-free guidance."""

    cfg_scale: float | None = _guidance(
        "--cfg-scale",
        metavar="S",
        help="Move away from the negative prompt by this factor; 1 = off, 1.5 = a bit. [1]",
    )
    cfg_negative_prompt: str | None = _guidance(
        "--cfg-negative-prompt",
        metavar="TEXT",
        help="Text in place of the prompt; in a chat, of the system message. [the prompt's last token]",
        has_escapes=True,
    )
    cfg_negative_prompt_file: str | None = _guidance(
        "--cfg-negative-prompt-file",
        metavar="FILE",
        help="Read the negative prompt from a file.",
        is_path=True,
        completion_kind=CompletionKind.FILE,
    )
    cfg_model: str | None = _guidance(
        "--cfg-model",
        metavar="FILE",
        help="Model with the same vocabulary that reads the negative prompt. [the model of -m]",
        is_path=True,
        completion_kind=CompletionKind.MODEL,
    )

    def overrides(self) -> Iterator[Override]:
        from ...common.text import without_last_line_end
        from ...presets.overrides import Override

        if self.cfg_negative_prompt is not None and self.cfg_negative_prompt_file is not None:
            raise UsageError("--cfg-negative-prompt and --cfg-negative-prompt-file: give one of them")
        negative_prompt, flag_name = self.cfg_negative_prompt, "--cfg-negative-prompt"
        if self.cfg_negative_prompt_file is not None:
            flag_name = "--cfg-negative-prompt-file"
            text = _read_file(self.cfg_negative_prompt_file, flag_name, _MAX_PROMPT_BYTES)
            negative_prompt = without_last_line_end(text)  # as in a file of the prompt
        values = {
            "--cfg-scale": ("scale", self.cfg_scale),
            flag_name: ("negative_prompt", negative_prompt),
            "--cfg-model": ("model", self.cfg_model),
        }
        for name, (key, value) in values.items():
            if value is not None:
                yield Override(name, "guidance", {key: value})


@dataclass(frozen=True, kw_only=True)
class TextRuleOptions(Options):
    """The flags of the rules that a text must follow, for which the run may go back."""

    ban_phrase: list[str] | None = _ban(
        "--ban-phrase",
        metavar="TEXT",
        help="Go back and write something else where this text appears, in any case of letters; repeatable.",
        has_escapes=True,
    )
    ban_regex: list[str] | None = _ban(
        "--ban-regex",
        metavar="PATTERN",
        help="Go back and write something else where this regular expression matches; repeatable.",
    )
    ban_file: list[str] | None = _ban(
        "--ban-file",
        "--banned-string-file",
        metavar="FILE",
        help="Read bans from a file: a phrase on each line, a regex as /.../; repeatable.",
        is_path=True,
        completion_kind=CompletionKind.FILE,
    )
    ban_retries: int | None = _ban(
        "--ban-retries",
        metavar="N",
        help="Number of times that the text returns to one place. [20]",
        setting_name="ban_retries",
        limit=at_least(0),
    )
    ban_then: str | None = _ban(
        "--ban-then",
        metavar="ACTION",
        help="Action after all retries: step_back (one token), keep or stop. [step_back]",
        setting_name="ban_then",
    )
    loop_guard: str | None = _ban(
        "--loop-guard",
        metavar="[ACTION]",
        help="When the text repeats itself: stop, end-thinking or rewind. [off; without a value, stop]",
        optional_value=OptionalValue("stop", re.compile(r"stop|end-thinking|rewind")),
    )
    heal: bool = _ban("--heal", help="Let the first tokens replace the last tokens of the prompt.", default=False)
    thinking_chain: str | None = _phase(
        "--thinking-chain",
        metavar="STEPS",
        help="Samplers of the reasoning, until --thinking-end. [those of the answer]",
        completion_kind=CompletionKind.CHAIN,
    )
    thinking_end: str | None = _phase(
        "--thinking-end",
        metavar="TEXT",
        help="Text that ends the reasoning. [that of the chat template, or </think>]",
        has_escapes=True,
    )
    reasoning_budget: int | None = _phase(
        "--reasoning-budget",
        metavar="N",
        help="Maximum number of tokens of the reasoning, which then ends; -1 = no limit. [-1]",
        limit=at_least(0, minus_one_meaning="no limit"),
    )
    reasoning_budget_message: str | None = _phase(
        "--reasoning-budget-message",
        metavar="TEXT",
        help="Text before the end of the reasoning, if --reasoning-budget ends it. [none]",
        has_escapes=True,
    )
    guidance: GuidanceOptions

    def overrides(self) -> Iterator[Override]:
        """Yield the settings that flags without a setting of the same name set."""
        from ...presets.overrides import Override

        bans = list(self._bans())
        if bans:
            yield Override(bans[0][0], "bans", [ban for _, ban in bans])
        if self.loop_guard is not None:
            guard = self.loop_guard
            yield Override("--loop-guard", "loop_guard", guard)
        if self.heal:
            yield Override("--heal", "heal", True)
        yield from self.guidance.overrides()
        phase = self._thinking_phase()
        if phase is not None:
            yield Override(phase[0], "phases", [phase[1], {}])

    def _bans(self) -> Iterator[tuple[str, Any]]:
        """Yield the flag and the ban, as a preset writes it, for each ban."""
        for phrase in self.ban_phrase or ():
            if not phrase:
                raise UsageError("--ban-phrase: an empty phrase would ban every text")
            yield "--ban-phrase", phrase
        for pattern in self.ban_regex or ():
            yield "--ban-regex", {"regex": pattern}
        for path in self.ban_file or ():
            for ban in _read_ban_file(path):
                yield "--ban-file", ban

    def _thinking_phase(self) -> tuple[str, dict[str, Any]] | None:
        """Return the first of the flags and the phase of the reasoning; None without these flags."""
        budget = None if self.reasoning_budget == -1 else self.reasoning_budget
        if self.reasoning_budget_message is not None and budget is None:
            raise UsageError("--reasoning-budget-message needs --reasoning-budget N")
        given = {
            "--thinking-chain": self.thinking_chain,
            "--thinking-end": self.thinking_end,
            "--reasoning-budget": budget,
        }
        flags = [name for name, value in given.items() if value is not None]
        if not flags:
            return None
        phase = {
            "chain": self.thinking_chain,
            "until": self.thinking_end,
            "max_tokens": budget,
            "then": self.reasoning_budget_message,
            "adds_end": True,
        }
        return flags[0], {name: value for name, value in phase.items() if value is not None}


def _read_ban_file(path: str) -> Iterator[Any]:
    """Yield the bans of a file, as a preset writes them."""
    from ...grammars.bans import parse_ban_lines
    from ...grammars.errors import GrammarError

    text = _read_file(path, "--ban-file", _MAX_BAN_FILE_BYTES)
    try:
        yield from (ban.as_setting() for ban in parse_ban_lines(text, f"--ban-file {path}"))
    except GrammarError as error:
        raise UsageError(error.message) from None


def _read_file(path: str, flag_name: str, max_bytes: int) -> str:
    from ...common.files import TextFileError, read_text_file

    try:
        return read_text_file(Path(path), max_bytes)
    except TextFileError as error:
        raise UsageError(f"{flag_name} {path}: {error}") from None

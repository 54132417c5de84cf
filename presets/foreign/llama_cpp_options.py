"""llama.cpp's options as command lines, environment variables and INI files spell them.

llama.cpp rejects an INI file with a name that it does not know, such as top_p. Here such a name is read as the
option that it probably means, and reported.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import PresetError
from ..llama_cpp_flags import LlamaCppFlag, find_llama_cpp_flag
from .command_line import CommandLine
from .ini import IniSection

OPTIONS_WITH_ESCAPES = ("dry-sequence-breaker", "reverse-prompt")
# the first name of each flag without which `gen run` writes another text, or at another speed by drafts
_FLAGS_THAT_CHANGE_THE_TEXT = (
    *("--lora", "-md", "--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min", "--override-kv"),
    *("--context-shift", "--keep", "--chat-template", "--chat-template-file", "--chat-template-kwargs"),
    *("--in-prefix", "--in-suffix"),
)
# the first name of each flag that `gen run` has under another name, and that matters for a preset's text
_FLAGS_WITH_ADVICE = ("--draft", "--draft-min", "--lora-scaled", "-sysf", "-hfd")


@dataclass(frozen=True)
class OptionValue:
    """The value of an option."""

    key_in_file: str  # the key or flag as the file writes it
    value: Any
    line: int = 0  # line number in an INI file, counted from 1; 0 if unknown


@dataclass
class FoundOptions:
    """The options in a file, and sentences about what is not an option of a preset, or is read with a change."""

    values: dict[str, OptionValue] = field(default_factory=dict)  # by option
    unsupported_settings: list[str] = field(default_factory=list)
    changed_settings: list[str] = field(default_factory=list)
    unknown_keys: list[str] = field(default_factory=list)
    # flags that `gen run` has and a preset cannot hold: the words to type, by the flag's first name
    flags_of_run: dict[str, str] = field(default_factory=dict)
    reports_of_flags: list[str] = field(default_factory=list)

    def report_unknown(self, key: str, sentence: str) -> None:
        self.unknown_keys.append(key)
        self.unsupported_settings.append(sentence)

    def report_changed(self, sentence: str) -> None:
        self.unsupported_settings.append(sentence)
        self.changed_settings.append(sentence)

    def add_other_flag(self, flag: LlamaCppFlag, name: str, value: str) -> None:
        """Add a flag that no preset holds. ``name``: as it is written, with dashes."""
        typed = f"{name} {shlex.quote(value)}" if value else name
        if flag.names[0] in _FLAGS_WITH_ADVICE:
            self.reports_of_flags.append(f"{typed}: {flag.meaning}; {flag.advice}")
        if flag.is_of_run:
            self.flags_of_run[flag.names[0]] = typed
            if flag.names[0] in _FLAGS_THAT_CHANGE_THE_TEXT:
                self.reports_of_flags.append(f"{typed}: not part of a preset; gen run has this flag")

    def add_flag(self, option: str, word: str, value: str) -> None:
        """Set an option. The value of a repeatable option is appended to the earlier values."""
        # ``word``: the flag as the command line has it
        earlier_value: Any = self.values[option].value if option in self.values else []
        new_value: Any = value
        if option == "logit-bias" and earlier_value:
            new_value = f"{earlier_value},{value}"
        elif option == "dry-sequence-breaker" and value == "none":
            new_value = earlier_value
        elif option in OPTIONS_WITH_ESCAPES:
            new_value = [*earlier_value, unescape(value)]
        self.values[option] = OptionValue(word, new_value)


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def unescape(text: str) -> str:
    """Return the text with llama.cpp's escapes, such as a backslash and n, replaced by the characters."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)


def escape(text: str) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(escapes.get(char, char) for char in text)


def read_command(command: CommandLine, origin: str) -> FoundOptions:
    """Return the options of a command line and of the variables before it."""
    found = FoundOptions()
    for name, value in command.environment.items():
        flag = _find_flag_of_variable(name)
        if flag is not None and flag.is_imported:
            found.values[flag.option] = OptionValue(name, value)
        elif flag is not None:
            found.add_other_flag(flag, flag.names[-1], value)
    _read_flags(command.words, found, origin)
    return found


def _read_flags(command_words: Sequence[str], found: FoundOptions, origin: str) -> None:
    pending_words = list(command_words)
    while pending_words:
        word = pending_words.pop(0)
        if not _is_flag(word):
            continue
        name, value = _split_flag(word)
        flag = find_llama_cpp_flag(name)
        if flag is None:
            found.unsupported_settings.append(f"{word}: llama.cpp does not know this option")
            continue
        if flag.option == "ignore-eos":
            found.values[flag.option] = OptionValue(word, True)
            continue
        is_value_next = value is None and bool(pending_words)
        if flag.is_imported:
            if is_value_next:
                value = pending_words.pop(0)
            if value is None:
                raise PresetError(f"{origin}: {word} has no value")
            found.add_flag(flag.option, name, value)
        else:  # it may have no value, so another flag may follow
            if is_value_next and not _is_flag(pending_words[0]):
                value = pending_words.pop(0)
            found.add_other_flag(flag, name, value or "")


_JOINED_VALUE_PATTERN = re.compile(r"(?P<flag>-[A-Za-z]{1,4})(?P<value>-?\d+(?:\.\d+)?)")  # -n128


def _is_flag(word: str) -> bool:
    """Return whether a word is a flag; a word such as ``-1``, ``-.5`` or ``-`` is a value."""
    return word.startswith("-") and not re.fullmatch(r"--?(?:\d.*|\.\d.*)?", word)


def _split_flag(word: str) -> tuple[str, str | None]:
    """Return the flag and the value of a word such as ``--top_k=40`` or ``-n128``; None: it has no value."""
    joined = _JOINED_VALUE_PATTERN.fullmatch(word)
    if (
        joined is not None
        and find_llama_cpp_flag(word) is None
        and find_llama_cpp_flag(joined["flag"]) is not None
    ):
        return joined["flag"], joined["value"]
    name, equals_sign, value = word.partition("=")
    if name.startswith("--"):
        name = name.replace("_", "-")  # as in llama.cpp
    return name, value if equals_sign else None


_MEANT_OPTIONS = {"repetition-penalty": "repeat-penalty", "rep-pen": "repeat-penalty", "max-tokens": "n-predict"}
# Variables of llama.cpp begin with one of these. An INI file may have them in place of options. A variable that
# does not belong to a sampler is left out of an import without a report.
_IGNORED_VARIABLES = ("LLAMA_ARG_", "LLAMA_API_KEY", "LLAMA_LOG_", "LLAMA_CACHE", "HF_TOKEN", "MODEL_ENDPOINT")


def is_ini_key(key: str) -> bool:
    """Return whether a key of an INI file is an option or a variable of llama.cpp, or means an option."""
    return bool(_exact_flag(key) or _meant_flag(key)) or key.startswith(_IGNORED_VARIABLES)


def _exact_flag(key: str) -> LlamaCppFlag | None:
    return _find_flag(key) or _find_flag_of_variable(key)


def _meant_flag(key: str) -> LlamaCppFlag | None:
    """Return the flag that a key of an INI file probably means."""
    name = key.lower().replace("_", "-").lstrip("-")
    return _find_flag(_MEANT_OPTIONS.get(name, name))


def read_sections(sections: Sequence[IniSection]) -> FoundOptions:
    """Return the options of sections of an INI file. Later sections take precedence."""
    found = FoundOptions()
    for section in sections:
        for key in sorted(section.values):  # as in llama.cpp, the last name counts if an option has two
            _read_key(section, key, found)
    return found


def _read_key(section: IniSection, key: str, found: FoundOptions) -> None:
    value = section.values[key]
    exact_flag = _exact_flag(key)
    meant_flag = _meant_flag(key)
    flag = exact_flag or meant_flag
    is_exact = exact_flag is not None and exact_flag.is_imported
    if not is_exact and meant_flag is not None and meant_flag.is_imported:
        flag = meant_flag
        found.report_changed(
            f"{key} {value}: llama.cpp rejects the file, since no option has this name; "
            f"it was read as {flag.option}"
        )
    if flag is None:
        if not key.startswith(_IGNORED_VARIABLES):
            found.report_unknown(key, f"{key} {value}: llama.cpp does not know this key, and rejects the file")
        return
    if not flag.is_imported:
        found.add_other_flag(flag, flag.names[-1], value)
        return
    found.values[flag.option] = OptionValue(key, value, section.line_numbers[key])
    if key in section.cut_off_text_by_key:
        comment = section.cut_off_text_by_key[key]
        found.report_changed(f"{key} {value}: llama.cpp takes {comment!r} as a comment")


# environment variables of llama.cpp, without ``LLAMA_ARG_``, that are not named after their option
_VARIABLE_NAMES = {
    "THINK_BUDGET": "reasoning-budget",
    "DRAFT_MAX": "spec-draft-n-max",
    "DRAFT_MIN": "spec-draft-n-min",
}


def _find_flag_of_variable(key: str) -> LlamaCppFlag | None:
    """Return the flag of an environment variable such as LLAMA_ARG_TOP_K; None if there is none."""
    name = key.removeprefix("LLAMA_ARG_")
    if name == key:
        return None
    return _find_flag(_VARIABLE_NAMES.get(name, name.lower().replace("_", "-")))


def _find_flag(name: str) -> LlamaCppFlag | None:
    """Return llama.cpp's flag with a name without dashes; None if there is none."""
    return find_llama_cpp_flag(f"-{name}") or find_llama_cpp_flag(f"--{name}")


# Options whose metadata key is not the option's name with underscores.
_OPTION_BY_METADATA_NAME = {
    "penalty-last-n": "repeat-last-n",
    "penalty-repeat": "repeat-penalty",
    "mirostat-tau": "mirostat-ent",
    "mirostat-eta": "mirostat-lr",
    "sequence": "samplers",
}


def option_of_metadata(name: str) -> str | None:
    """Return the option of a metadata key of a GGUF, without the prefix; None if llama.cpp has none."""
    name = name.replace("_", "-")
    flag = _find_flag(_OPTION_BY_METADATA_NAME.get(name, name))
    return flag.option if flag is not None and flag.is_imported else None

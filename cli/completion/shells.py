"""The completion script of each shell, and the form in which the script reads completions.

A script passes the line up to the cursor to `gen` in two environment variables, and reads the output of `gen`. The
first line of the output is the kind of the next lines: ``words``, ``parts`` (words without a space after them) or
``files``. The script treats the next lines as data, and never executes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .values import CompletionItem, CompletionResult

SHELL_VARIABLE, LINE_VARIABLE = "_GEN_COMPLETE", "_GEN_COMPLETE_LINE"
# Characters that end a word in readline, except spaces and quotes; part of COMP_WORDBREAKS in Bash.
_BREAKS = "=:><;|&("


class TypedWord(NamedTuple):
    """A word of a typed line."""

    text: str  # without its quotes and backslashes
    quote: str = ""  # the quote that is not closed yet; empty if there is none
    # Index in ``text`` of the part that readline replaces, which begins after an open quote, or after the last
    # character that ends a word in readline.
    last_part: int = 0


def split_line(line: str) -> list[TypedWord]:
    """Return the words of a line. The last one is the word at the cursor, which is empty after a space."""
    # Quotes and backslashes have the meaning of POSIX shells. An open quote extends to the end of the line.
    words, text, quote, last_part, is_word = [], "", "", 0, False
    characters = iter(line)
    for character in characters:
        if quote:
            if character == quote:
                quote = ""
            elif character == "\\" and quote == '"':
                text += _escaped_in_quotes(next(characters, ""))
            else:
                text += character
        elif character.isspace():
            if is_word:
                words.append(TypedWord(text))
            text, last_part, is_word = "", 0, False
            continue
        elif character in "'\"":
            quote, last_part = character, len(text)
        elif character == "\\":
            text += next(characters, "")
        else:
            text += character
            if character in _BREAKS:
                last_part = len(text)
        is_word = True
    return [*words, TypedWord(text, quote, last_part)]


def _escaped_in_quotes(character: str) -> str:
    return character if character in '"\\$`' else f"\\{character}"


def _bash_answer(result: CompletionResult, word: TypedWord) -> str:
    """Return the part of each completion that readline replaces, quoted like the typed word."""
    if result.file_suffix is not None:
        return _files(result, word)
    texts = [_quoted(item.text[word.last_part :], word.quote) for item in result.items]
    return _lines(_kind(result), texts)


def _zsh_answer(result: CompletionResult, word: TypedWord) -> str:
    """Return each completion, a colon and its help. zsh quotes the completion."""
    if result.file_suffix is not None:
        return _files(result, word)
    return _lines(_kind(result), [_described(item) for item in result.items])


def _fish_answer(result: CompletionResult, word: TypedWord) -> str:
    """Return each completion, a tab and its help. fish quotes it, and adds no space after ``.`` or ``=``."""
    if result.file_suffix is not None:
        return _files(result, word)
    return _lines(_kind(result), ["\t".join(_on_one_line(item)) for item in result.items])


ANSWERS: Mapping[str, Callable[[CompletionResult, TypedWord], str]] = {
    "bash": _bash_answer,
    "zsh": _zsh_answer,
    "fish": _fish_answer,
}


def _kind(result: CompletionResult) -> str:
    has_parts = not result.adds_space or any(item.is_partial for item in result.items)
    return "parts" if has_parts else "words"


def _files(result: CompletionResult, word: TypedWord) -> str:
    """Return the required end of file names, a slash, and the typed part of the path."""
    return _lines("files", [f"{result.file_suffix}/{word.text[result.path_start_index :]}"])


def _lines(kind: str, texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in (kind, *texts))


def _on_one_line(item: CompletionItem) -> tuple[str, ...]:
    parts = (item.text, item.help) if item.help else (item.text,)
    return tuple(" ".join(part.split()) if part is item.help else part for part in parts)


def _described(item: CompletionItem) -> str:
    text, *help_or_nothing = _on_one_line(item)
    return ":".join([text.replace("\\", "\\\\").replace(":", "\\:"), *help_or_nothing])


_BASH_SPECIAL = re.compile(r"([^\w@%+=:,./#~-])")
_SPECIAL_IN_DOUBLE_QUOTES = re.compile(r'(["\\$`])')


def _quoted(text: str, quote: str) -> str:
    if quote == '"':
        return _SPECIAL_IN_DOUBLE_QUOTES.sub(r"\\\1", text)
    return text if quote else _BASH_SPECIAL.sub(r"\\\1", text)


_BASH = r"""# Completion of gen for Bash.
_gen_completion() {
    local line kind=""
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ -z $kind ]]; then
            kind=$line
        elif [[ $kind == files ]]; then
            _gen_completion_files "$line"
        else
            COMPREPLY+=("$line")
        fi
    done < <(_GEN_COMPLETE=bash _GEN_COMPLETE_LINE="${COMP_LINE:0:COMP_POINT}" "$1" 2>/dev/null)
    if [[ $kind == parts ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
_gen_completion_files() {
    local suffix=${1%%/*} typed=${1#*/} path
    compopt -o filenames 2>/dev/null
    while IFS= read -r path; do
        COMPREPLY+=("$path")
    done < <(compgen -d -- "$typed"; compgen -f -X "!*$suffix" -- "$typed" | while IFS= read -r path; do
        [[ -d ${path/#\~/$HOME} ]] || printf '%s\n' "$path"
    done)
}
complete -F _gen_completion gen
"""

_ZSH = r"""#compdef gen
# Completion of gen for zsh.
_gen() {
    local -a lines words_only parts
    local line kind
    lines=("${(@f)$(_GEN_COMPLETE=zsh _GEN_COMPLETE_LINE="${(j: :)words[1,CURRENT-1]} $QIPREFIX$PREFIX" \
        "${(Q)words[1]/#\~/$HOME}" 2>/dev/null)}")
    kind=$lines[1]
    shift lines
    case $kind in
        words) _describe -t values value lines ;;
        parts) _describe -t values value lines -S '' ;;
        files)
            [[ $PREFIX == -*=* ]] && compset -P 1 '*='
            if [[ -n ${lines[1]%%/*} ]]; then _files -g "*${lines[1]%%/*}"; else _files; fi ;;
    esac
}
if [[ $funcstack[1] == _gen ]]; then _gen "$@"; else compdef _gen gen; fi
"""

_FISH = r"""# Completion of gen for fish.
function __gen_completion
    set -lx _GEN_COMPLETE fish
    set -lx _GEN_COMPLETE_LINE (commandline -cp | string collect)
    set -l lines (gen 2>/dev/null)
    if test "$lines[1]" = files
        set -l suffix (string split -m 1 / -- $lines[2])[1]
        set -l typed (string split -m 1 / -- $lines[2])[2]
        set -l prefix (string split -m 1 -r = -- (commandline -ct))
        for path in (__fish_complete_path $typed)
            set -l name (string split -m 1 \t -- $path)[1]
            if string match -q -- "*/" $name; or string match -q -- "*$suffix" $name
                if set -q prefix[2]; and string match -q -- '-*' $prefix[1]
                    echo $prefix[1]=$name
                else
                    echo $path
                end
            end
        end
    else
        printf '%s\n' $lines[2..-1]
    end
end
complete -c gen -f -a '(__gen_completion)'
# fish would treat a tilde in a completion as a part of the name; the completion of files in fish does not.
complete -c gen -n "string match -q -- '~*' (commandline -ct)" -F
"""

SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

"""The command line of llama.cpp in a text: typed, in a script, in a service file, or in a container's file.

A command line is found where a shell would run it: at the start of a line or after ``&&``, behind variables
(``LLAMA_ARG_TOP_K=20 llama-server``) and programs such as ``sudo`` or ``docker run``. In a compose file, and in
a pod of Kubernetes, it is the ``command`` or ``args`` of a container whose image has llama.cpp's name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import PresetError
from .modelfile import is_modelfile
from .table import parse_yaml_1_1


@dataclass
class CommandLine:
    """A command line of llama.cpp."""

    words: list[str]  # the words after the program
    # the variables that are set before the command, by name
    environment: dict[str, str] = field(default_factory=dict)
    count: int = 1  # number of the command lines in the text, of which this is the first


def find_command(text: str, origin: str = "") -> CommandLine | None:
    """Return the first command line of llama.cpp in a text."""
    # A text that begins with a flag is a command line without its program. Raises ``PresetError`` for open quotes.
    if text.lstrip().startswith(("{", "[")) and "ExecStart" not in text:  # JSON, or an INI file
        return None
    if is_modelfile(text):  # it may mention a command line
        return None
    if _CONTAINER_PATTERN.search(text):
        commands = list(_container_commands(text))
        if commands:
            return _first(commands)
    lines = [line for line in text.split("\n") if not _COMMENT_PATTERN.match(line)]
    joined_lines = _CONTINUATION_PATTERN.sub(" ", "\n".join(lines)).split("\n")
    return _first(list(_commands_of_lines(joined_lines, origin)))


def _first(commands: Sequence[CommandLine]) -> CommandLine | None:
    return None if not commands else CommandLine(commands[0].words, commands[0].environment, len(commands))


_COMMENT_PATTERN = re.compile(r"[ \t]*(?:#|::|rem[ \t])", re.IGNORECASE)
# the end of a line that the next one continues: in a Unix shell, in PowerShell and in Windows' cmd
_CONTINUATION_PATTERN = re.compile(r"(?:[ \t]*\\|[ \t]+[`^])[ \t]*(?:#[^\n]*)?\n")
# what may stand before a command: the prompt of a shell, or a key of a service file or a YAML file
_LINE_START_PATTERN = re.compile(
    r"[ \t]*(?:"
    r"(?:\$|%|>|\u276f|PS [^>\n]*>|[A-Za-z]:\\[^>\n]*>|[\w.-]+@[^\s$#]*[ \t]?[^\s$#]*[$#])[ \t]+"
    r"|Exec\w+=[-@:+!]*|Environment=|(?:cmd|command|run|script):[ \t]+(?![|>])"
    r")"
)
_ALIAS_PATTERN = re.compile(
    r"[ \t]*(?:alias|doskey)[ \t]+[\w.-]+=(?P<quote>['\"]?)(?P<command>.*)(?P=quote)[ \t]*"
)
_POWERSHELL_VARIABLE_PATTERN = re.compile(r"\$env:(\w+)[ \t]*=[ \t]*", re.IGNORECASE)
_FLAG_PATTERN = re.compile(r"--?[A-Za-z][\w-]*(?:[\s=]|$)")
_WINDOWS_PATTERN = re.compile(r"\.exe\b|\b[A-Za-z]:\\|(?:^|\s)\.\\", re.IGNORECASE)


def _commands_of_lines(lines: Sequence[str], origin: str) -> Iterator[CommandLine]:
    """Yield the commands of lines. A line that begins with a flag belongs to the command before it."""
    environment: dict[str, str] = {}
    commands: list[CommandLine] = []
    is_first = True
    for words in _words_of_lines(lines, origin):
        if _FLAG_PATTERN.match(words[0]) and (commands or is_first):
            commands = commands or [CommandLine([])]
            commands[-1].words += words
        else:
            found = [_find_in_words(simple, environment) for simple in _split_at_operators(words)]
            commands += [command for command in found if command is not None]
        is_first = False
    yield from commands


def _words_of_lines(lines: Sequence[str], origin: str) -> Iterator[list[str]]:
    """Yield the words of each line that has any. A line with an open quote goes on to the end of the text."""
    for index, line in enumerate(map(_without_start, lines)):
        words = _split_words(line)
        if words is not None:
            if words:
                yield words
            continue
        rest = _split_words("\n".join([line, *lines[index + 1 :]]))
        if rest is not None:
            yield rest
            return
        if _find_in_words(line.split(), {}) is not None:
            raise PresetError(f"{origin}: not a command line: a quote is not closed")


def _without_start(line: str) -> str:
    """Return a line without a shell's prompt, a key of a service file, or the name of an alias."""
    line = _POWERSHELL_VARIABLE_PATTERN.sub(r"\1=", line)
    alias = _ALIAS_PATTERN.fullmatch(line)
    if alias is not None:
        return alias["command"]
    start = _LINE_START_PATTERN.match(line)
    return line if start is None else line[start.end() :]


def _split_words(line: str) -> list[str] | None:
    """Return the words of a line, without a comment; None if a quote is not closed."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    lexer.commenters = "#" if re.search(r"(?:^|\s)#", line) else ""
    if _WINDOWS_PATTERN.search(line):
        lexer.escape = ""  # a backslash separates folders
    try:
        return list(lexer)
    except ValueError:
        return None


_OPERATORS = ("&&", "||", "|", ";", "&")
_REDIRECTION_PATTERN = re.compile(r"(?:\d|&)?(?:>>?|<)(?:&\d)?")


def _split_at_operators(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the simple commands of a line, without redirections."""
    simple_command: list[str] = []
    is_redirected = False
    for word in words:
        if is_redirected:
            is_redirected = False
        elif _REDIRECTION_PATTERN.fullmatch(word):
            is_redirected = "&" not in word[1:]
        elif word in _OPERATORS:
            yield simple_command
            simple_command = []
        elif not re.fullmatch(r"\d?>{1,2}\S+", word):
            simple_command.append(word)
    yield simple_command


_ASSIGNMENT_PATTERN = re.compile(r"(?:--env=|-e=?)?(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_ASSIGNING_WORDS = ("export", "set", "setx", "declare", "setenv")
_SHELLS = ("bash", "sh", "zsh", "fish", "cmd", "powershell", "pwsh")
_CONTAINER_PROGRAMS = ("docker", "podman", "nerdctl", "docker-compose")
# programs that run another one, whose command line follows theirs, and a shell's words before a command
_WRAPPERS = (
    *_CONTAINER_PROGRAMS,
    *_SHELLS,
    *("env", "sudo", "doas", "nohup", "time", "numactl", "taskset", "nice", "ionice", "chrt", "exec", "command"),
    *(
        "timeout",
        "stdbuf",
        "setsid",
        "srun",
        "mpirun",
        "systemd-run",
        "caffeinate",
        "start",
        "start-process",
        "call",
    ),
    *("strace", "gdb", "perf", "screen", "tmux", "xvfb-run", "prime-run", "nixglhost", "flatpak-spawn", "watch"),
    *("ssh", "wsl", "chroot", "firejail", "conda", "eval", "if", "then", "else", "while", "until", "do", "!", "{"),
)
_PROGRAM_PATTERN = re.compile(r"llama-(?!swap$)[a-z][\w-]*|.+\.llamafile|llamafile")
_FORMER_PROGRAMS = ("main", "server")
_IMAGE_PATTERN = re.compile(r"(?:\S*/)?llama[._-]?(?:cpp|server)[\w.-]*(?::(?P<tag>[\w.-]+))?", re.IGNORECASE)
# the first words after llama.cpp's image ``full``, which choose a program
_FULL_IMAGE_COMMANDS = ("--run", "-r", "--server", "-s", "--run-legacy", "-l")


def _find_in_words(words: Sequence[str], environment: dict[str, str]) -> CommandLine | None:
    """Return the command line in a simple command; None if it runs another program."""
    # Variables that the words set are added to ``environment``.
    position = 1 if words and words[0].lower() in _ASSIGNING_WORDS else 0
    while position < len(words) and _read_assignment(words[position], environment):
        position += 1
    rest = list(words[position:])
    if not rest:
        return None
    program_words = _words_after_program(rest)
    if program_words is not None:
        return CommandLine(program_words, dict(environment))
    name = _program_name(rest[0])
    return _find_after_wrapper(name, rest, dict(environment)) if name in _WRAPPERS else None


def _find_after_wrapper(name: str, words: Sequence[str], environment: dict[str, str]) -> CommandLine | None:
    """Return the command line that a program such as ``sudo`` or ``docker`` runs; None if it runs another one."""
    # ``environment``: the variables before the program, to which those in its words are added.
    for index, word in enumerate(words[1:], 1):
        if _read_assignment(word, environment):
            continue
        if " " in word:  # bash -c "llama-server -c 8192"
            command = _first(list(_commands_of_lines([word], "")))
            if command is not None:
                return CommandLine(command.words, environment | command.environment, command.count)
        if _program_name(word) in _CONTAINER_PROGRAMS:  # sudo docker run
            name = _program_name(word)
        image = _IMAGE_PATTERN.fullmatch(word) if name in _CONTAINER_PROGRAMS else None
        if image is not None:
            return CommandLine(_words_after_image(image["tag"], words[index + 1 :]), environment)
        program_words = _words_after_program(words[index:])
        if program_words is not None:
            return CommandLine(program_words, environment)
    return None


def _read_assignment(word: str, environment: dict[str, str]) -> bool:
    """Add a variable that a word sets; return whether the word sets one."""
    match = _ASSIGNMENT_PATTERN.fullmatch(word)
    if match is not None:
        environment[match["name"]] = match["value"].strip("'\"")
    return match is not None


def _program_name(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


def _words_after_program(words: Sequence[str]) -> list[str] | None:
    """Return the words after a program of llama.cpp; None if the first word is no such program."""
    name, rest = _program_name(words[0]), list(words[1:])
    has_flags = bool(rest) and rest[0].startswith("-")
    if name == "llama" and rest:  # llama serve, llama run
        return rest if has_flags else rest[1:] if re.fullmatch(r"[a-z-]+", rest[0]) else None
    if _PROGRAM_PATTERN.fullmatch(name) or (name in _FORMER_PROGRAMS and (has_flags or name != words[0])):
        return rest
    return None


def _words_after_image(tag: str | None, words: Sequence[str]) -> list[str]:
    if tag is not None and tag.startswith("full") and words and words[0] in _FULL_IMAGE_COMMANDS:
        return list(words[1:])
    return (_words_after_program(words) if words else None) or list(words)


_CONTAINER_PATTERN = re.compile(r"^[ \t]*(?:-[ \t]+)?[\"']?image[\"']?:[ \t]", re.MULTILINE)


def _container_commands(text: str) -> Iterator[CommandLine]:
    """Yield the commands of llama.cpp's containers in a YAML text; nothing if it is not YAML."""
    try:
        values = [parse_yaml_1_1(part, "") for part in re.split(r"^---.*$", text, flags=re.MULTILINE)]
    except PresetError:
        return
    while values:
        value = values.pop(0)
        if isinstance(value, Mapping):
            command = _container_command(value)
            if command is not None:
                yield command
            values[:0] = value.values()
        elif isinstance(value, list):
            values[:0] = value


def _container_command(container: Mapping[Any, Any]) -> CommandLine | None:
    image = container.get("image")
    words = [word for key in ("entrypoint", "command", "args") for word in _words_of_value(container.get(key))]
    environment = {
        **_environment_of(container.get("environment")),
        **_environment_of(container.get("env")),
    }
    found = _find_in_words(words, dict(environment)) if words else None
    if found is not None:
        return found
    match = _IMAGE_PATTERN.fullmatch(image) if isinstance(image, str) else None
    if match is None or not (words or environment):
        return None
    return CommandLine(_words_after_image(match["tag"], words), environment)


def _words_of_value(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(word) for word in value]
    return _split_words(_CONTINUATION_PATTERN.sub(" ", value)) or [] if isinstance(value, str) else []


def _environment_of(value: Any) -> dict[str, str]:
    """Return variables that are a table, a list of ``NAME=VALUE``, or a list of ``{name, value}``."""
    if isinstance(value, Mapping):
        return {str(name): str(item) for name, item in value.items()}
    environment: dict[str, str] = {}
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            environment[str(item.get("name"))] = str(item.get("value", ""))
        else:
            _read_assignment(str(item), environment)
    return environment

"""The command line of llama.cpp in a text: typed, in a script, in a service file, or in a container's file.

A command line is found where a shell would run it: at the start of a line, or after ``&&``. Variables
(``LLAMA_ARG_TOP_K=20 llama-server``) and programs such as ``sudo`` or ``docker run`` may precede it. In a compose
file, and in a pod of Kubernetes, it is the ``command`` or ``args`` of a container whose image has llama.cpp's
name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    count: int = 1  # how many command lines the text has; this is the first one


def find_command(text: str, origin: str = "") -> CommandLine | None:
    """Return the first command line of llama.cpp in a text."""
    # A text that begins with a flag is a command line without its program. Raises ``PresetError`` for open quotes.
    is_json_or_ini = text.lstrip().startswith(("{", "[")) and "ExecStart" not in text
    if is_json_or_ini or is_modelfile(text):  # such a file may mention a command line
        return None
    if _CONTAINER_PATTERN.search(text):
        commands = list(_container_commands(text))
        if commands:
            return _first(commands)
    lines = [line for line in text.split("\n") if not _COMMENT_PATTERN.match(line)]
    joined_lines = _CONTINUATION_PATTERN.sub(" ", "\n".join(lines)).split("\n")
    return _first(_commands_of_lines(joined_lines, origin))


def _first(commands: Sequence[CommandLine]) -> CommandLine | None:
    """Return the first command, with the number of all commands; None if there is none."""
    if not commands:
        return None
    return replace(commands[0], count=len(commands))


_COMMENT_PATTERN = re.compile(r"[ \t]*(?:#|::|rem[ \t])", re.IGNORECASE)
# the end of a line that is continued on the next line
_CONTINUATION_PATTERN = re.compile(
    r"""
    (?:
        [ \t]*\\        # in a Unix shell
        | [ \t]+[`^]    # in PowerShell, and in cmd of Windows
    )
    [ \t]*
    (?:\#[^\n]*)?       # a comment
    \n
    """,
    re.VERBOSE,
)
# what may stand before a command in a line
_LINE_START_PATTERN = re.compile(
    r"""
    [ \t]*
    (?:
        (?:                                             # prompts of shells:
            \$ | % | > | \u276f
            | PS[ ][^>\n]*>                             # PS C:\models>
            | [A-Za-z]:\\[^>\n]*>                       # C:\models>
            | [\w.-]+@[^\s$\#]*[ \t]?[^\s$\#]*[$\#]     # me@host:~/models$
        )
        [ \t]+
        | Exec\w+=[-@:+!]*                              # keys of a service file
        | Environment=
        | (?:cmd|command|run|script):[ \t]+(?![|>])     # keys of a YAML file
    )
    """,
    re.VERBOSE,
)
_ALIAS_PATTERN = re.compile(
    r"[ \t]*(?:alias|doskey)[ \t]+[\w.-]+=(?P<quote>['\"]?)(?P<command>.*)(?P=quote)[ \t]*"
)
_POWERSHELL_VARIABLE_PATTERN = re.compile(r"\$env:(\w+)[ \t]*=[ \t]*", re.IGNORECASE)
_FLAG_PATTERN = re.compile(r"--?[A-Za-z][\w-]*(?:[\s=]|$)")
# signs of a command line of Windows: a program llama-cli.exe, and the paths C:\models and .\models
_WINDOWS_PATTERN = re.compile(r"\.exe\b|\b[A-Za-z]:\\|(?:^|\s)\.\\", re.IGNORECASE)


def _commands_of_lines(lines: Sequence[str], origin: str) -> list[CommandLine]:
    """Return the commands of lines. A line that begins with a flag belongs to the command before it."""
    environment: dict[str, str] = {}
    commands: list[CommandLine] = []
    for line_number, words in enumerate(_words_of_lines(lines, origin), 1):
        begins_with_flag = _FLAG_PATTERN.match(words[0]) is not None
        if begins_with_flag and line_number == 1:
            commands.append(CommandLine(words))
        elif begins_with_flag and commands:
            commands[-1].words += words
        else:
            for simple_command in _split_at_operators(words):
                command = _find_in_words(simple_command, environment)
                if command is not None:
                    commands.append(command)
    return commands


def _words_of_lines(lines: Sequence[str], origin: str) -> Iterator[list[str]]:
    """Yield the words of each line that has any. A line with an open quote goes on to the end of the text."""
    for index, full_line in enumerate(lines):
        line = _without_start(full_line)
        words = _split_words(line)
        if words is not None:
            if words:
                yield words
            continue
        words_to_end = _split_words("\n".join([line, *lines[index + 1 :]]))
        if words_to_end is not None:
            yield words_to_end
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
_REDIRECTION_PATTERN = re.compile(r"(?:\d|&)?(?:>>?|<)(?:&\d)?")  # > or 2>>, whose file follows, or 2>&1
_REDIRECTION_WITH_FILE_PATTERN = re.compile(r"\d?>{1,2}\S+")  # >log.txt


def _split_at_operators(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the simple commands of a line, without redirections."""
    simple_command: list[str] = []
    is_file_of_redirection = False
    for word in words:
        if is_file_of_redirection:
            is_file_of_redirection = False
        elif _REDIRECTION_PATTERN.fullmatch(word):
            is_file_of_redirection = "&" not in word[1:]
        elif word in _OPERATORS:
            yield simple_command
            simple_command = []
        elif not _REDIRECTION_WITH_FILE_PATTERN.fullmatch(word):
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
    *("timeout", "stdbuf", "setsid", "srun", "mpirun", "systemd-run", "caffeinate"),
    *("start", "start-process", "call"),
    *("strace", "gdb", "perf", "screen", "tmux", "xvfb-run", "prime-run", "nixglhost", "flatpak-spawn", "watch"),
    *("ssh", "wsl", "chroot", "firejail", "conda", "eval", "if", "then", "else", "while", "until", "do", "!", "{"),
)
_PROGRAM_PATTERN = re.compile(r"llama-(?!swap$)[a-z][\w-]*|.+\.llamafile|llamafile")
_FORMER_PROGRAMS = ("main", "server")  # names of llama-cli and llama-server until 2024
_IMAGE_PATTERN = re.compile(r"(?:\S*/)?llama[._-]?(?:cpp|server)[\w.-]*(?::(?P<tag>[\w.-]+))?", re.IGNORECASE)
# the first words after llama.cpp's image ``full``, which choose a program
_FULL_IMAGE_COMMANDS = ("--run", "-r", "--server", "-s", "--run-legacy", "-l")


def _find_in_words(words: Sequence[str], environment: dict[str, str]) -> CommandLine | None:
    """Return the command line in a simple command; None if it runs another program."""
    # Variables that the words set are added to ``environment``.
    position = 1 if words and words[0].lower() in _ASSIGNING_WORDS else 0
    while position < len(words) and _add_assignment(words[position], environment):
        position += 1
    program_and_arguments = list(words[position:])
    if not program_and_arguments:
        return None
    arguments = _arguments_of_llama_cpp(program_and_arguments)
    if arguments is not None:
        return CommandLine(arguments, dict(environment))
    name = _program_name(program_and_arguments[0])
    if name not in _WRAPPERS:
        return None
    return _find_after_wrapper(name, program_and_arguments, dict(environment))


def _find_after_wrapper(name: str, words: Sequence[str], environment: dict[str, str]) -> CommandLine | None:
    """Return the command line that a program such as ``sudo`` or ``docker`` runs; None if it runs another one."""
    # ``words``: the program, whose name is ``name``, and its arguments.
    # ``environment``: the variables that are set before the program. Those in its words are added.
    runs_container = name in _CONTAINER_PROGRAMS
    for index, word in enumerate(words[1:], 1):
        if _add_assignment(word, environment):
            continue
        if " " in word:  # bash -c "llama-server -c 8192"
            command = _first(_commands_of_lines([word], ""))
            if command is not None:
                return replace(command, environment=environment | command.environment)
        if _program_name(word) in _CONTAINER_PROGRAMS:  # sudo docker run
            runs_container = True
        image = _IMAGE_PATTERN.fullmatch(word) if runs_container else None
        if image is not None:
            return CommandLine(_arguments_after_image(image["tag"], words[index + 1 :]), environment)
        arguments = _arguments_of_llama_cpp(words[index:])
        if arguments is not None:
            return CommandLine(arguments, environment)
    return None


def _add_assignment(word: str, environment: dict[str, str]) -> bool:
    """Add the variable that a word such as ``NAME=VALUE`` sets; return False if the word sets none."""
    match = _ASSIGNMENT_PATTERN.fullmatch(word)
    if match is None:
        return False
    environment[match["name"]] = match["value"].strip("'\"")
    return True


def _program_name(word: str) -> str:
    r"""Return the name of a program without its folder and ending: ``C:\bin\llama-cli.exe`` is ``llama-cli``."""
    return word.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")


def _arguments_of_llama_cpp(words: Sequence[str]) -> list[str] | None:
    """Return the words after a program of llama.cpp; None if the first word is no such program."""
    program, *arguments = words
    name = _program_name(program)
    begins_with_flag = bool(arguments) and arguments[0].startswith("-")
    if name == "llama" and arguments and not begins_with_flag:
        subcommand = arguments.pop(0)  # llama serve, llama run
        return arguments if re.fullmatch(r"[a-z-]+", subcommand) else None
    # The former names are common words. So they count only with a path or a flag.
    is_former_program = name in _FORMER_PROGRAMS and (begins_with_flag or name != program)
    is_llama = name == "llama" and begins_with_flag
    if is_llama or is_former_program or _PROGRAM_PATTERN.fullmatch(name):
        return arguments
    return None


def _arguments_after_image(tag: str | None, words: Sequence[str]) -> list[str]:
    """Return the arguments of llama.cpp in the words after the image of a container."""
    if not words:
        return []
    is_full_image = tag is not None and tag.startswith("full")
    if is_full_image and words[0] in _FULL_IMAGE_COMMANDS:
        return list(words[1:])
    return _arguments_of_llama_cpp(words) or list(words)


_CONTAINER_PATTERN = re.compile(r"^[ \t]*(?:-[ \t]+)?[\"']?image[\"']?:[ \t]", re.MULTILINE)


def _container_commands(text: str) -> Iterator[CommandLine]:
    """Yield the commands of llama.cpp's containers in a YAML text; nothing if it is not YAML."""
    documents = re.split(r"^---.*$", text, flags=re.MULTILINE)
    try:
        pending_values = [parse_yaml_1_1(document, "") for document in documents]
    except PresetError:
        return
    while pending_values:
        value = pending_values.pop(0)
        if isinstance(value, Mapping):
            command = _container_command(value)
            if command is not None:
                yield command
            pending_values[:0] = value.values()
        elif isinstance(value, list):
            pending_values[:0] = value


def _container_command(container: Mapping[Any, Any]) -> CommandLine | None:
    """Return the command line of llama.cpp that a container runs; None if it runs another program."""
    words: list[str] = []
    for key in ("entrypoint", "command", "args"):
        words += _words_of_value(container.get(key))
    environment = {
        **_environment_of(container.get("environment")),
        **_environment_of(container.get("env")),
    }
    command = _find_in_words(words, dict(environment))
    if command is not None:
        return command
    image = container.get("image")
    match = _IMAGE_PATTERN.fullmatch(image) if isinstance(image, str) else None
    if match is None or not (words or environment):
        return None
    return CommandLine(_arguments_after_image(match["tag"], words), environment)


def _words_of_value(value: Any) -> list[str]:
    """Return the words of a command that is a list, or a text."""
    if isinstance(value, list):
        return [str(word) for word in value]
    if not isinstance(value, str):
        return []
    return _split_words(_CONTINUATION_PATTERN.sub(" ", value)) or []


def _environment_of(value: Any) -> dict[str, str]:
    """Return variables that are a table, a list of ``NAME=VALUE``, or a list of ``{name, value}``."""
    if isinstance(value, Mapping):
        return {str(name): str(item) for name, item in value.items()}
    environment: dict[str, str] = {}
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            environment[str(item.get("name"))] = str(item.get("value", ""))
        else:
            _add_assignment(str(item), environment)
    return environment

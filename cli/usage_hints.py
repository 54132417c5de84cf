"""Error messages about wrong words of a command line, with hints for flags and commands of other tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..common.text import did_you_mean, nearest_name, unknown_name
from .flags import DeclaredFlag, normalize_flag_name

# Minimum similarity of a word to a command. It allows one wrong letter of six, not ``watch`` for ``batch``.
_COMMAND_SIMILARITY = 0.82
# Minimum similarity of a word to a flag. It allows two wrong letters, but not ``--json`` for ``--stop``.
_FLAG_SIMILARITY = 0.75

# The flag of `gen` to use instead of flags of other tools, if the tables of settings do not have their name.
# The tools are KoboldAI, KoboldCpp, text-generation-webui, Ollama, llm, transformers, vLLM and mlx-lm.
_FLAGS_TO_USE = {
    "--num-tokens": "-n N",
    "--min-new-tokens --min-length": "--set min_tokens=N",
    "--ctx --context --contextsize --num-ctx --n-ctx --context-length": "-c N",
    "--max-context-length --max-model-len --max-seq-len": "-c N",
    "--num-gpu --gpulayers": "-ngl N",
    "--num-thread --n-threads": "-t N",
    "--num-batch --n-batch --blasbatchsize": "-b N",
    "--model-path --model-name": "-m MODEL",
    "--adapter --adapter-path --lora-path": "--lora FILE",
    "--prompt-file": "-f FILE",
    "--system-message --instruction": "--system TEXT",
    "--ignore-chat-template --raw": "--no-chat",
    "--stop-sequences --stop-strings": "--stop TEXT",
    "--ban-eos-token --ban-eos": "--ignore-eos",
    "--rp": "--repeat-penalty N",
    "--repetition-context-size": "--repeat-last-n N",
    "--rep-pen-slope": "--set repetition_penalty.slope=N with --set repetition_penalty.penalty=N and --set"
    " repetition_penalty.range=N; for KoboldCpp's slope also --set repetition_penalty.shape=halves",
    "--freq-pen --frequency-pen": "--frequency-penalty N",
    "--presence-pen --pres-pen": "--presence-penalty N",
    "--mirostat-mode": "--mirostat N",
    "--dynatemp-low --dynatemp-high": "--dynatemp-range N",
    "--xtc-prob": "--xtc-probability N",
    "--smoothing-curve": "--set quadratic.curve=N",
    "--tfs-z": "--set tfs.z=N",
    "--sampler-order --sampler-priority --temperature-last --temp-last": "--chain STEPS",
    "--greedy": "--temp 0",
    "--num-beams --beam-width --beam-size --beam": "--beams N",
    "--num-return-sequences": "--n-best K with --beams, or --samples N",
    "--json": "--format jsonl, or --grammar json",
    "--schema --guided-json --response-format": "-j SCHEMA, or -jf FILE",
    "--guided-regex": "--regex PATTERN",
    "--guided-grammar --grammar-string": "--grammar NAME",
    "--top-logprobs --n-probs": "--logprobs N",
    "--base-url --url": "--endpoint URL",
}
# Flags of other tools that `gen` does not need, and the reason.
_FLAGS_TO_LEAVE_OUT = {
    "--no-stream": "gen writes the text while it is generated",
    "--do-sample": "gen samples tokens randomly, except with --temp 0",
}

_FLAG_TO_USE = {flag: instead for flags, instead in _FLAGS_TO_USE.items() for flag in flags.split()}

_PROMPT_OF_CHAT = "pipe it in: echo TEXT | gen chat; or, for one answer: gen --chat TEXT"
# The alternative to a flag that a command does not have, by the command and the flag.
_ALTERNATIVES = {
    ("gen batch", "--endpoint"): "gen batch runs a model on this machine: -m MODEL",
    ("gen chat", "-p"): _PROMPT_OF_CHAT,
    ("gen chat", "--prompt"): _PROMPT_OF_CHAT,
}

_HINTS_ON_EXTRA_WORDS = {
    "gen run": "put quotes around a prompt of several words",
    "gen chat": "messages are typed in the chat, or piped in; for one answer: gen --chat TEXT",
}

_SERVER_COMMANDS = "server start launch daemon"
# The command of `gen` to use instead of commands of other tools.
# The tools are Ollama, llm, llama.cpp, LM Studio, vLLM, mlx-lm and hf.
_COMMANDS_TO_USE = {
    "help man": "gen --help",
    "version": "gen --version",
    "list ls models-list": "gen models",
    "show info": "gen models show MODEL",
    "pull get download": "gen models pull hf:USER/REPO",
    "generate prompt cli infill": "gen run PROMPT",
    "complete": "gen run PROMPT, or gen completion SHELL to set up completion in a shell",
    "create import": "gen presets import FILE",
    "export": "gen presets export NAME --to FORMAT",
    "templates aliases": "gen presets",
    "schema": "gen presets schema",
    "schemas": "gen grammars",
    "sample": "gen grammars sample NAME",
    "check": "gen presets check NAME, or gen grammars check NAME",
    "perplexity eval": "gen score TEXT",
    "run-batch": "gen batch FILE",
    _SERVER_COMMANDS: "gen serve",
    "logs history chats": "gen chat --list",
    "plugins": "gen doctor, which lists the plug-ins",
    "config settings": "gen run PROMPT --show-config",
    "env status collect-env": "gen doctor",
    "login signin auth": "hf auth login for the token of Hugging Face",
}

_NO_RESIDENT_MODEL = "gen keeps no model in memory after a run"
_NO_EMBEDDINGS = "gen does not compute embeddings"
_NO_CONVERSION = "gen runs GGUF files, and does not convert them"
# Commands of other tools that have no counterpart in `gen`, and the reason or an alternative.
_COMMANDS_ELSEWHERE = {
    "stop ps load unload": _NO_RESIDENT_MODEL,
    "rm remove delete": "gen does not delete models",
    "cp push upload": "gen does not copy or upload models",
    "embed embedding embed-models embed-multi similar": _NO_EMBEDDINGS,
    "quantize convert fuse imatrix": _NO_CONVERSION,
    "quit exit": "gen ends after each run, and /quit leaves gen chat",
    "update upgrade install uninstall": "pip installs, updates and removes gen",
    "logout signout": "gen has no accounts",
    "keys": "gen reads API keys from environment variables, see gen recover --help",
    "bench": "gen --stats measures a run",
    "tokenize detokenize": "gen score TEXT --format json lists the tokens of a text",
    "tools": "gen does not call tools",
    "search": "gen does not search model hubs; gen models lists the models on this machine",
}

_COMMAND_ADVICE = {
    **{word: f"use {command}" for words, command in _COMMANDS_TO_USE.items() for word in words.split()},
    **{word: reason for words, reason in _COMMANDS_ELSEWHERE.items() for word in words.split()},
}


def unknown_flag_sentence(word: str, flags: Sequence[DeclaredFlag], command_path: str) -> str:
    """Return the message about a word with a dash that is no flag of the command, such as ``gen run``."""
    names = [name for flag in flags for name in flag.names]
    name, sign, value = word.partition("=")
    if word.startswith("--"):
        return _unknown_long_flag(name, flags, command_path)
    message = _foreign_flag_sentence(command_path, name) or _llama_cpp_sentence(name)
    if message is not None:
        return message
    if sign and name in names:
        return f"{word}: write {name} {value}"
    if f"-{name}" in names:
        return f"there is no flag {name}; write -{name}"
    takes_text = any(flag.field == "prompt" for flag in flags)
    text_hint = f"to use text that begins with a dash: {command_path} [FLAGS] -- TEXT"
    return f"there is no flag {name}; {text_hint if takes_text else f'{command_path} --help lists the flags'}"


def _unknown_long_flag(flag: str, flags: Sequence[DeclaredFlag], command_path: str) -> str:
    names = [name for declared in flags for name in declared.names]
    message = _llama_cpp_sentence(normalize_flag_name(flag)) or _foreign_flag_sentence(command_path, flag, flags)
    if message is not None:
        return message
    if "--set" in names:
        setting = _setting_of_run(_flag_of_run(flag) or flag)
        if setting is not None:
            return f"there is no flag {flag} in {command_path}; use --set {setting}"
        sampler_flag = None if flag.lower() in names else _sampler_flag(flag, flags)
        if sampler_flag is not None:
            return f"there is no flag {flag}; use {sampler_flag}"
    hint = _near_flag(flag, names) or f"{command_path} --help lists the flags"
    return f"there is no flag {flag}; {hint}"


def missing_sentence(flag: DeclaredFlag, command_path: str) -> str:
    """Return the message about a required flag or argument that is missing."""
    name = flag.shown_name.rpartition(", ")[2]  # the last name of the flag is enough
    meaning = flag.flag.help.partition(";")[0].rstrip(".")
    return f"{command_path} needs {name}: {meaning[:1].lower()}{meaning[1:]}"


def extra_words_sentence(words: Iterable[str], flags: Iterable[DeclaredFlag], command_path: str) -> str:
    """Return the message about words that no argument takes."""
    from .help_page import usage_line

    hint = _HINTS_ON_EXTRA_WORDS.get(command_path) or f"usage: {usage_line(command_path, flags)}"
    return f"unexpected argument {' '.join(words)!r}; {hint}"


def unknown_command_sentence(word: str, commands: Collection[str], command_path: str) -> str:
    """Return the message about a word that is no command of a group, such as ``gen presets``."""
    show_command = _show_command(command_path, word)
    if show_command is not None:
        return f"{command_path}: unknown command {word!r}; use {show_command}"
    return f"{command_path}: {unknown_name('command', word, commands)}"


def is_server_command(word: str) -> bool:
    """Return whether a word starts a server in other tools."""
    return word in _SERVER_COMMANDS.split()


def command_advice(word: str, commands: Collection[str]) -> str | None:
    """Return what to type instead of a mistyped command or a command of another tool."""
    # Returns None if the word looks like a prompt.
    if word in _COMMAND_ADVICE:
        return _COMMAND_ADVICE[word]
    singulars = {name.removesuffix("s"): name for name in commands if name.endswith("s")}
    names = {**{name: name for name in commands}, **singulars}
    nearest = nearest_name(word, names, _COMMAND_SIMILARITY)
    return None if nearest is None else f"use gen {names[nearest]}"


def _show_command(group: str, name: str) -> str | None:
    """Return the command of ``gen presets`` or ``gen grammars`` that shows a name; None if there is none."""
    if group == "gen presets":
        from ..presets.search import list_presets

        names = [entry.name for entry in list_presets()]
    elif group == "gen grammars":
        from ..grammars.search import list_grammars
        from ..requests.sources import grammar_folders

        names = [entry.name for entry in list_grammars(grammar_folders())]
    else:
        return None
    return f"{group} show {name}" if name in names else None


def _llama_cpp_sentence(name: str) -> str | None:
    """Return the message about a flag of llama.cpp; None if llama.cpp does not have it, or `gen` has it, too."""
    from ..presets.llama_cpp_flags import find_llama_cpp_flag

    flag = find_llama_cpp_flag(name)
    return f"{name} is {flag.meaning} in llama.cpp; {flag.advice}" if flag is not None and flag.meaning else None


def _flag_of_run(flag: str) -> str | None:
    """Return the flag of `gen run` that corresponds to another tool's flag; None if there is none."""
    instead = _FLAG_TO_USE.get(normalize_flag_name(flag))
    return None if instead is None else instead.split()[0].rstrip(",")


def _foreign_flag_sentence(command: str, flag: str, flags: Sequence[DeclaredFlag] = ()) -> str | None:
    """Return the message about a flag of another tool; None if the flag is unknown."""
    # ``command``: as it is typed, such as ``gen batch``. ``flags``: those of the command.
    names = [name for declared in flags for name in declared.names]
    instead, reason = (
        _FLAG_TO_USE.get(normalize_flag_name(flag)),
        _FLAGS_TO_LEAVE_OUT.get(normalize_flag_name(flag)),
    )
    if (command, flag) in _ALTERNATIVES:
        return f"{command} has no {flag}; {_ALTERNATIVES[command, flag]}"
    if instead is not None and _flag_of_run(flag) in names:
        return f"there is no flag {flag}; use {instead}"
    if reason is not None and "--chain" in names:
        return f"there is no flag {flag}; omit it: {reason}"
    for setting in _settings_called(flag):
        same = [declared for declared in flags if declared.flag.setting_name == setting]
        if len(same) == 1:  # several flags set different parts
            return f"there is no flag {flag}; use {same[0].flag.name} {same[0].metavar}"
    return None


def _settings_called(flag: str) -> list[str]:
    """Return the settings, as ``--set`` names them, that have the name of a flag in requests of another tool."""
    from ..presets.parameter_names import PARAMETERS, request_names
    from ..presets.setting_table import SETTINGS

    name = normalize_flag_name(flag).removeprefix("--").replace("-", "_")
    own = [setting.name for setting in SETTINGS.values() if name in request_names(setting.names)]
    return [*own, *(row.target for row in PARAMETERS if name in row.request_names)]


def _near_flag(flag: str, names: Collection[str]) -> str:
    """Return a hint that names a similar flag; empty if no flag is similar."""
    if flag[1:] in names:  # --n
        return f"write {flag[1:]}"
    long_names = [name for name in names if name.startswith("--")]
    return did_you_mean(normalize_flag_name(flag), long_names, _FLAG_SIMILARITY)


def _sampler_flag(flag: str, flags: Iterable[DeclaredFlag]) -> str | None:
    """Return the flag that sets the sampler whose name was typed as a flag."""
    # Returns None if there is no such sampler, or if the sampler has no main parameter. ``flags``: those of the
    # command.
    from ..samplers.errors import SamplingError
    from ..samplers.registry import find_sampler

    try:
        about = find_sampler(flag.lstrip("-")).about
    except SamplingError:
        return None
    if about.main_parameter is None:
        return None
    target = f"{about.name}.{about.main_parameter}"
    own = next((declared.flag.name for declared in flags if declared.flag.setting_name == target), None)
    return own or f"--set {about.name}=VALUE"


def _setting_of_run(flag: str) -> str | None:
    """Return the argument of ``--set`` that is equivalent to a sampler's flag; None if there is none."""
    # ``flag``: of `gen run`, or a name in requests of other tools
    from ..presets.parameter_names import MAIN_SAMPLER_FLAGS, SAMPLER_FLAGS

    called = _settings_called(flag)
    for declared in (*MAIN_SAMPLER_FLAGS, *SAMPLER_FLAGS):
        if declared.setting_name is not None and (flag in declared.names or declared.setting_name in called):
            return f"{declared.setting_name}={'true' if declared.value_type is bool else 'VALUE'}"
    return None

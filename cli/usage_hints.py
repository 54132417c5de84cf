"""Error messages about wrong words of a command line, with hints for flags and commands of other tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields

from ..common.text import did_you_mean, nearest_name, unknown_name
from .flags import DeclaredFlag, normalize_flag_name

# Minimum similarity of a word to a command. It allows one wrong letter of six, not ``watch`` for ``batch``.
_COMMAND_SIMILARITY = 0.82
# Minimum similarity of a word to a flag. It allows two wrong letters, but not ``--json`` for ``--stop``.
_FLAG_SIMILARITY = 0.75

# The flag of `gen` to use instead of flags and settings of other tools.
# The tools are KoboldAI, KoboldCpp, text-generation-webui, Ollama, llm, transformers, vLLM and mlx-lm.
_FLAGS_TO_USE = {
    "--max-tokens --max-new-tokens --max-length --num-tokens --num-predict": "-n N",
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
    "--stop-sequence --stop-sequences --stop-strings --stopping-strings --custom-stopping-strings": "--stop TEXT",
    "--ban-eos-token --ban-eos": "--ignore-eos",
    "--rep-pen --repetition-penalty --rp": "--repeat-penalty N",
    "--rep-pen-range --repetition-penalty-range --repetition-context-size": "--repeat-last-n N",
    "--rep-pen-slope": "--set repetition_penalty.slope=N with --set repetition_penalty.penalty=N and --set"
    " repetition_penalty.range=N; for KoboldCpp's slope also --set repetition_penalty.shape=halves",
    "--freq-pen --frequency-pen": "--frequency-penalty N",
    "--presence-pen --pres-pen": "--presence-penalty N",
    "--mirostat-mode": "--mirostat N",
    "--mirostat-tau": "--mirostat-ent N",
    "--mirostat-eta": "--mirostat-lr N",
    "--dynatemp-low --dynatemp-high": "--dynatemp-range N",
    "--dynatemp-exponent": "--dynatemp-exp N",
    "--xtc-prob": "--xtc-probability N",
    "--dry-range": "--dry-penalty-last-n N",
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
        return _unknown_long_flag(name, names, command_path)
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


def _unknown_long_flag(flag: str, names: Collection[str], command_path: str) -> str:
    message = _llama_cpp_sentence(normalize_flag_name(flag)) or _foreign_flag_sentence(command_path, flag, names)
    if message is not None:
        return message
    if "--set" in names:
        setting = _setting_of_run(_flag_of_run(flag) or flag)
        if setting is not None:
            return f"there is no flag {flag} in {command_path}; use --set {setting}"
        sampler_flag = None if flag.lower() in names else _sampler_flag(flag, names)
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


def _foreign_flag_sentence(command: str, flag: str, flags: Collection[str] = ()) -> str | None:
    """Return the message about a flag of another tool; None if the flag is unknown."""
    # ``command``: as it is typed, such as ``gen batch``. ``flags``: the names of the command's flags.
    instead, reason = (
        _FLAG_TO_USE.get(normalize_flag_name(flag)),
        _FLAGS_TO_LEAVE_OUT.get(normalize_flag_name(flag)),
    )
    if (command, flag) in _ALTERNATIVES:
        return f"{command} has no {flag}; {_ALTERNATIVES[command, flag]}"
    if instead is not None and _flag_of_run(flag) in flags:
        return f"there is no flag {flag}; use {instead}"
    if reason is not None and "--chain" in flags:
        return f"there is no flag {flag}; omit it: {reason}"
    return None


def _near_flag(flag: str, names: Collection[str]) -> str:
    """Return a hint that names a similar flag; empty if no flag is similar."""
    if flag[1:] in names:  # --n
        return f"write {flag[1:]}"
    long_names = [name for name in names if name.startswith("--")]
    return did_you_mean(normalize_flag_name(flag), long_names, _FLAG_SIMILARITY)


def _sampler_flag(flag: str, flags: Collection[str]) -> str | None:
    """Return the flag that sets the sampler whose name was typed as a flag."""
    # Returns None if there is no such sampler, or if the sampler has no main parameter. ``flags``: the names of
    # the command's flags.
    from ..samplers.errors import SamplingError
    from ..samplers.registry import find_sampler
    from .flags import flag_of_field
    from .options.sampling import FullSamplingOptions

    try:
        about = find_sampler(flag.lstrip("-")).about
    except SamplingError:
        return None
    if about.main_parameter is None:
        return None
    declared = filter(None, map(flag_of_field, fields(FullSamplingOptions)))
    own = next(
        (each.name for each in declared if each.setting_name == f"{about.name}.{about.main_parameter}"), None
    )
    return own if own in flags else f"--set {about.name}=VALUE"


def _setting_of_run(flag: str) -> str | None:
    """Return the argument of ``--set`` that is equivalent to a flag of `gen run`; None if there is none."""
    from .flags import flag_of_field
    from .options.sampling import FullSamplingOptions

    for declared in map(flag_of_field, fields(FullSamplingOptions)):
        if declared is not None and flag in declared.names and declared.setting_name is not None:
            return f"{declared.setting_name}=VALUE"
    return "ignore_eos=true" if flag == "--ignore-eos" else None

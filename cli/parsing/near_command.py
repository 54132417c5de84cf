"""Words that are nearly a command, or a command of another tool: they are probably no prompt."""

from __future__ import annotations

from collections.abc import Collection

_SIMILARITY = 0.82
"""One wrong letter in a name of six, one too few or too many in a shorter name; ``watch`` is not ``batch``."""

_USE = {
    "help man": "gen --help",
    "version": "gen --version",
    "list ls models-list": "gen models",
    "show info": "gen models show MODEL",
    "pull get download": "gen models pull hf:USER/REPO",
    "generate prompt cli infill": "gen run PROMPT",
    "complete": "gen run PROMPT, or gen completion SHELL for the completion of a shell",
    "create import": "gen presets import FILE",
    "export": "gen presets export NAME --to FORMAT",
    "templates aliases": "gen presets",
    "schema": "gen presets schema",
    "schemas": "gen grammars",
    "sample": "gen grammars sample NAME",
    "check": "gen presets check NAME, or gen grammars check NAME",
    "perplexity eval": "gen score TEXT",
    "run-batch": "gen batch FILE",
    "logs history chats": "gen chat --list",
    "plugins": "gen samplers, which lists the samplers of plug-ins",
    "config settings": "gen run PROMPT --show-config",
    "env status collect-env": "gen doctor",
    "login signin auth": "hf auth login for the token of Hugging Face",
}
"""Commands of other tools, and what `gen` has in their place.

The tools are Ollama, llm, llama.cpp, LM Studio, vLLM, mlx-lm and hf.
"""

_NO_SERVER = "gen has no server"
_NO_RESIDENT_MODEL = "gen keeps no model in memory after a run"
_NO_EMBEDDINGS = "gen makes no embeddings"
_NO_CONVERSION = "gen runs GGUF files, and changes none"
_NOT_HERE = {
    "serve server start launch daemon": _NO_SERVER,
    "stop ps load unload": _NO_RESIDENT_MODEL,
    "rm remove delete": "gen deletes no models",
    "cp push upload": "gen copies and uploads no models",
    "embed embedding embed-models embed-multi similar": _NO_EMBEDDINGS,
    "quantize convert fuse imatrix": _NO_CONVERSION,
    "quit exit": "gen ends after each run, and /quit leaves gen chat",
    "update upgrade install uninstall": "pip installs, updates and removes gen",
    "logout signout": "gen has no accounts",
    "keys": "gen reads keys of APIs from variables, see gen recover --help",
    "bench": "gen measures a run with --stats",
    "tokenize detokenize": "gen score TEXT --format json lists the tokens of a text",
    "tools": "gen calls no tools",
    "search": "gen searches no model hub; gen models lists the models on this machine",
}
"""Commands of other tools that `gen` has in no form, and the reason or another way."""

_ADVICE = {
    **{word: f"use {command}" for words, command in _USE.items() for word in words.split()},
    **{word: reason for words, reason in _NOT_HERE.items() for word in words.split()},
}


def is_server_command(word: str) -> bool:
    """True for a word that starts a server in other tools."""
    return _ADVICE.get(word) == _NO_SERVER


def command_advice(word: str, commands: Collection[str]) -> str | None:
    """Return what to type in place of a word that is nearly a command, or a command of another tool.

    None if the word looks like a prompt.
    """
    from ...common import nearest_name

    if word in _ADVICE:
        return _ADVICE[word]
    singulars = {name.removesuffix("s"): name for name in commands if name.endswith("s")}
    names = {**{name: name for name in commands}, **singulars}
    nearest = nearest_name(word, names, _SIMILARITY)
    return None if nearest is None else f"use gen {names[nearest]}"


def command_of_name(group: str, name: str) -> str | None:
    """The command that shows what a group has under this name, ``gen presets show creative``; None: it has none.

    ``group``: as it is typed, such as ``gen presets``.
    """
    if group == "gen presets":
        from ...presets import list_presets

        names = [entry.name for entry in list_presets()]
    elif group == "gen grammars":
        from ...grammars import list_grammars
        from ..inputs.grammar import grammar_folders

        names = [entry.name for entry in list_grammars(grammar_folders())]
    else:
        return None
    return f"{group} show {name}" if name in names else None

"""The commands that show and change settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...completion.reply import Reply
from ...options.completes import Completes
from .command import ChatCommand, ChatCommandError, refuse_argument

if TYPE_CHECKING:
    from ..terminal.chat import Chat

_GRAMMAR_KINDS = ("file", "json_schema", "json_schema_file", "regex", "lark_file")
_NONE = "none"


def _set(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/set needs NAME.PARAM=VALUE, such as min_p.p=0.1; /settings shows all")
    before = chat.settings.settings.system
    changed = chat.settings.set(argument)
    after = chat.settings.settings.system
    if after is not before:
        chat.conversation.set_system(after.value)
    chat.save_settings()
    chat.confirm(changed)


def _chain(chat: Chat, argument: str) -> None:
    if not argument:
        raise ChatCommandError("/chain needs steps, such as top-k40 > temp0.8; /settings shows the chain")
    chat.settings.replace_chain(argument)
    chat.save_settings()
    chat.confirm(_chain_now(chat))


def _preset(chat: Chat, argument: str) -> None:
    from ...render.config import SETTING_NAMES

    if not argument:
        raise ChatCommandError("/preset needs the name of a preset, or a file; gen presets lists them")
    before = chat.settings.settings
    chat.settings.replace_preset(argument, chat.session.model.metadata)
    after = chat.settings.settings
    if after.system is not before.system:
        chat.conversation.set_system(after.system.value)
    chat.save_settings()
    others = [name for name in SETTING_NAMES if getattr(after, name) is not getattr(before, name)]
    also = f"; it also sets {', '.join(others)}" if others else ""
    chat.confirm(f"preset {argument}: {_chain_now(chat)}{also}")


def _chain_now(chat: Chat) -> str:
    from ...render.config import chain_summary

    return f"chain = {chain_summary(chat.settings.settings.steps)}"


def _seed(chat: Chat, argument: str) -> None:
    if not argument:
        value = chat.settings.settings.seed.value
        print("a new one for each answer" if value is None else value)
        return
    if argument != "random" and not argument.isdecimal():
        raise ChatCommandError(f"/seed: {argument!r} is not an integer, nor random")
    chat.settings.override("/seed", "seed", None if argument == "random" else int(argument))
    chat.save_settings()
    chat.confirm("the seed is random now" if argument == "random" else f"seed = {argument}")


def _system(chat: Chat, argument: str) -> None:
    from ...render.text import terminal_safe

    if not argument:
        import sys

        print(terminal_safe(chat.conversation.system or "there is no system message", sys.stdout))
        return
    text = None if argument == _NONE else argument
    chat.settings.override("/system", "system", text)
    chat.conversation.set_system(text)
    chat.save_settings()
    chat.confirm("there is no system message now" if text is None else f"system = {text!r}")


def _grammar(chat: Chat, argument: str) -> None:
    from ...render.config import grammar_summary

    kind, _, rest = argument.partition(" ")
    if not argument:
        kinds = ", ".join(_GRAMMAR_KINDS)
        raise ChatCommandError(
            f"/grammar needs a name (gen grammars), GBNF, {_NONE}, or one of {kinds} and its value"
        )
    value: object = {kind: rest.strip()} if kind in _GRAMMAR_KINDS else argument
    chat.settings.override("/grammar", "grammar", None if argument == _NONE else value)
    chat.save_settings()
    spec = chat.settings.spec
    chat.confirm(
        "there is no grammar now"
        if spec is None
        else f"grammar = {grammar_summary(spec).removeprefix('grammar ')}"
    )


def _settings(chat: Chat, argument: str) -> None:
    from ...render.config import show_settings

    refuse_argument("settings", argument)
    show_settings(chat.settings.settings, chat.settings.spec, chat.settings.chosen_model())


def _completes(kind: Completes) -> Callable[[Chat, str], Reply]:
    def complete(_chat: Chat, typed: str) -> Reply:
        from ...completion.values import complete_text

        return complete_text(kind, typed)

    return complete


COMMANDS = (
    ChatCommand("set", "NAME.PARAM=VALUE", "Set one value: min_p.p=0.1", _set, _completes(Completes.SETTING)),
    ChatCommand("chain", "STEPS", "Use these steps: top-k40 > temp0.8", _chain, _completes(Completes.CHAIN)),
    ChatCommand("preset", "NAME", "Use a preset's chain and settings.", _preset, _completes(Completes.PRESET)),
    ChatCommand("seed", "[N|random]", "Set the seed of the answers, or show it.", _seed),
    ChatCommand("system", "[TEXT|none]", "Set the system message, or show it.", _system),
    ChatCommand(
        "grammar",
        "NAME|GBNF|none",
        "Hold the answers to a grammar; also regex TEXT, json_schema JSON, file FILE.",
        _grammar,
        _completes(Completes.GRAMMAR_NAME),
    ),
    ChatCommand("settings", "", "Show the values, and where each is from.", _settings),
)

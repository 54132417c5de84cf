"""What may stand for the value of a flag or an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ...common.errors import LogitsmithError
from ..options.completes import Completes
from ..options.flag import DeclaredFlag
from .models import complete_model
from .reply import Candidate, Reply, matching
from .sampler_names import sampler_candidates
from .steps import complete_chain, complete_sequence, complete_setting

_ANY_FILE = ""
_FILES: Mapping[Completes, str] = {Completes.FILE: _ANY_FILE, Completes.GGUF_FILE: ".gguf"}


def complete_value(flag: DeclaredFlag, word: str, start: int = 0) -> Reply:
    """Return what completes the value of a flag.

    Args:
        flag: the flag, or an argument.
        word: the word at the cursor.
        start: where the value begins in it, such as behind ``--format=``.
    """
    prefix, value = word[:start], word[start:]
    reply = _complete(flag, value)
    candidates = [Candidate(prefix + text, summary) for text, summary in reply.candidates]
    return reply._replace(candidates=candidates, file_start=start)


def _complete(flag: DeclaredFlag, value: str) -> Reply:
    if flag.choices:
        return Reply(matching(map(Candidate, flag.choices), value))
    completes = flag.flag.completes
    if completes is None and (flag.value_type is Path or flag.flag.is_path):
        completes = Completes.FILE
    return Reply([]) if completes is None else complete_text(completes, value)


def complete_text(completes: Completes, value: str) -> Reply:
    """Return what completes a text that stands for something of this kind."""
    if completes in _PARTS:
        return _PARTS[completes](value)
    if completes in _FILES:
        return Reply([], file_suffix=_FILES[completes])
    candidates = matching(_NAMES[completes](), value)
    # A name, or a file where no name begins so.
    is_file_possible = completes in _NAMES_OR_FILES and not candidates
    return Reply(candidates, file_suffix=_ANY_FILE if is_file_possible else None)


def _presets() -> Iterable[Candidate]:
    from ...presets.search import list_presets

    try:
        return [Candidate(entry.name, entry.origin) for entry in list_presets() if not entry.shadowed]
    except LogitsmithError:  # a folder that may not be read: the command says so
        return []


def _preset_or_chain(value: str) -> Reply:
    candidates = matching(_presets(), value)
    return Reply(candidates) if candidates else complete_chain(value)


def _presets_and_model() -> Iterable[Candidate]:
    return [*_presets(), Candidate("model", "the settings of the GGUF's author")]


def _grammars() -> Iterable[Candidate]:
    from ...grammars.search import list_grammars
    from ..jobs.sources import grammar_folders

    try:
        return [Candidate(entry.name, entry.description) for entry in list_grammars(grammar_folders())]
    except LogitsmithError:  # as above
        return []


def _chats() -> Iterable[Candidate]:
    """The names of stored chats, and the ids of all. A store is not made for a completion."""
    from ..chats.database import store_path
    from ..chats.store import ChatStore

    try:
        if not store_path().exists():
            return []
        store = ChatStore.open()
        try:
            chats = store.list_conversations()
        finally:
            store.close()
    except LogitsmithError:  # the command says so
        return []
    named = [Candidate(each.name, each.title) for each in chats if each.name and each.name.isprintable()]
    return [*named, *(Candidate(each.id, each.name or each.title) for each in chats)]


def _import_formats() -> Iterable[Candidate]:
    from ...presets.foreign import FORMATS

    return map(Candidate, FORMATS)


def _export_formats() -> Iterable[Candidate]:
    from ...presets.foreign import EXPORT_FORMATS

    return map(Candidate, EXPORT_FORMATS)


_NAMES: Mapping[Completes, Callable[[], Iterable[Candidate]]] = {
    Completes.CHAT: _chats,
    Completes.EXPORT_FORMAT: _export_formats,
    Completes.GRAMMAR: _grammars,
    Completes.GRAMMAR_NAME: _grammars,
    Completes.IMPORT_FORMAT: _import_formats,
    Completes.PRESET: _presets_and_model,
    Completes.PRESET_FILE: _presets,
    Completes.SAMPLER: sampler_candidates,
}
_NAMES_OR_FILES = (Completes.GRAMMAR, Completes.PRESET, Completes.PRESET_FILE)
_PARTS: Mapping[Completes, Callable[[str], Reply]] = {
    Completes.CHAIN: complete_chain,
    Completes.LLAMA_CPP_SAMPLERS: complete_sequence,
    Completes.MODEL: complete_model,
    Completes.PRESET_OR_CHAIN: _preset_or_chain,
    Completes.SETTING: complete_setting,
}

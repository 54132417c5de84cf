"""From flags and presets to the grammar of a run."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.errors import UsageError
from ..errors import note
from ..options.grammar import ConstraintOptions, given_grammar
from ..options.grammars import GrammarSourceOptions

if TYPE_CHECKING:
    from ...grammars import GrammarSpec
    from ...presets import Preset, Settings

_WAYS_TO_GIVE_FILES = {
    "--grammar": {"json_schema": "-jf", "lark": "--lark-file", "": "--grammar-file"},
    "/grammar": {
        "json_schema": "/grammar json_schema_file",
        "lark": "/grammar lark_file",
        "": "/grammar file",
    },
}
"""What takes a file, by what was given in its place and by the kind of the file's grammar; "": all others."""


def grammar_folders() -> list[tuple[str, Path]]:
    """Where grammars are looked for before the library: ./grammars, and the folder of the user's config."""
    from ...presets import config_folder

    user = config_folder() / "grammars"
    return [("./grammars", Path("grammars")), (str(user), user)]


def grammar_spec(options: ConstraintOptions, settings: Settings) -> GrammarSpec | None:
    """The grammar of a run, checked as far as it can be without a model. Raises ``GrammarError``."""
    value = settings.grammar.value
    if value is None:
        _refuse_without_grammar(options)
        return None
    from ...grammars import GrammarError, grammar_table, resolve_grammar

    if options.grammar_root is not None:
        value = {**grammar_table(value), "root": options.grammar_root}
    if options.grammar_after is not None:
        value = {**grammar_table(value), "after": options.grammar_after}
    if options.schema_lenient:
        value = {**grammar_table(value), "schema_lenient": True}
    try:
        spec = resolve_grammar(value, grammar_folders(), settings.grammar_base)
        spec.check()
    except GrammarError as error:
        if isinstance(settings.grammar.value, str):
            _refuse_file(settings.grammar.origin, settings.grammar.value)
        raise error.within(settings.grammar.origin) from None
    report_schema(spec)
    return spec


def _refuse_file(origin: str, name: str) -> None:
    """Raise ``GrammarError`` with what takes a file if that is what ``origin`` was given."""
    from ...grammars import KIND_OF_SUFFIX, GrammarError

    ways, path = _WAYS_TO_GIVE_FILES.get(origin), Path(name)
    with suppress(OSError, ValueError):  # a grammar's text is no path
        if ways is not None and path.is_file():
            way = ways.get(KIND_OF_SUFFIX.get(path.suffix, ""), ways[""])
            typed = shlex.quote(name) if origin.startswith("--") else name  # a chat takes the line as it is
            raise GrammarError(f"{origin}: {name} is a file; give it by {way} {typed}")


def grammar_of_source(options: GrammarSourceOptions) -> GrammarSpec:
    """The grammar that a command's argument or one of its flags names. Raises ``GrammarError``."""
    is_lenient = options.grammar.schema_lenient
    given = given_grammar(options.grammar)
    if given is None:
        return find_grammar_source(str(options.name), options.root, is_lenient=is_lenient)
    from ...grammars import GrammarError, grammar_table, resolve_grammar

    table = {**grammar_table(given.value), "root": options.root, "schema_lenient": is_lenient}
    try:
        return resolve_grammar(table, grammar_folders())
    except GrammarError as error:
        raise error.within(given.flag) from None


def find_grammar_source(name: str, root: str = "root", *, is_lenient: bool = False) -> GrammarSpec:
    """A grammar by its name, or by its file, whose ending names the kind. Raises ``GrammarError``."""
    from ...grammars import KIND_OF_SUFFIX, GrammarError, GrammarSpec, read_grammar_file, resolve_grammar

    path = Path(name)
    kind = KIND_OF_SUFFIX.get(path.suffix)
    if kind is not None:
        if root != "root" and kind != "gbnf":
            raise GrammarError(f"{name}: --root names a rule of GBNF, and this is a {path.suffix} file")
        if is_lenient and kind != "json_schema":
            raise GrammarError(f"{name}: --schema-lenient is for a JSON Schema, and this is a {path.suffix} file")
        source = read_grammar_file(path)
        text = source.rstrip("\n") if kind == "regex" else source
        return GrammarSpec(name, kind, text, root, schema_lenient=is_lenient)
    if "/" in name or path.suffix:
        raise GrammarError(
            f"{name}: the kind of a grammar file is told by its ending: {', '.join(KIND_OF_SUFFIX)}"
        )
    if is_lenient:
        raise GrammarError(f"{name}: --schema-lenient is for a JSON Schema, and this is GBNF")
    return resolve_grammar({"name": name, "root": root}, grammar_folders())


def _refuse_without_grammar(options: ConstraintOptions) -> None:
    for flag, is_given in (
        ("--grammar-root", options.grammar_root is not None),
        ("--grammar-after", options.grammar_after is not None),
        ("--grammar-complete", options.grammar_complete),
        ("--schema-lenient", options.schema_lenient),
    ):
        if is_given:
            raise UsageError(f"{flag} needs a grammar")


def report_left_out(spec: GrammarSpec) -> None:
    """Print a note of what is left out of a JSON Schema, if anything is."""
    if spec.left_out:
        note(f"left out of the JSON Schema: {', '.join(spec.left_out)}")


def report_schema(spec: GrammarSpec) -> None:
    """Print notes of what is left out of a JSON Schema, and of keys that it allows without a name."""
    report_left_out(spec)
    _hint_at_open_object(spec)


def _hint_at_open_object(spec: GrammarSpec) -> None:
    """Few people mean a schema that allows keys which it does not name."""
    pointer = spec.open_object
    if pointer is not None:
        place = f" at {pointer}" if pointer else ""
        note(f'the JSON Schema allows other keys too{place}; "additionalProperties": false forbids them')


def check_grammar(preset: Preset) -> None:
    """Raise ``GrammarError`` for a preset whose grammar is wrong."""
    from ...grammars import GrammarError, resolve_grammar
    from ...presets import preset_folder

    value = {} if preset.grammar is None else preset.grammar
    try:
        resolve_grammar(value, grammar_folders(), preset_folder(preset)).check()
    except GrammarError as error:
        raise error.within(preset.origin) from None

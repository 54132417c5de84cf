"""From flags and presets to the grammar of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import note

if TYPE_CHECKING:
    from ...grammars.spec import GrammarSpec
    from ...presets.preset import Preset


def grammar_folders() -> list[tuple[str, Path]]:
    """Where grammars are looked for before the library: ./grammars, and the folder of the user's config."""
    from ...presets.search import config_folder

    user = config_folder() / "grammars"
    return [("./grammars", Path("grammars")), (str(user), user)]


def find_grammar_source(name: str, root: str = "root", *, is_lenient: bool = False) -> GrammarSpec:
    """A grammar by its name, or by its file, whose ending names the kind. Raises ``GrammarError``."""
    from ...grammars.errors import GrammarError
    from ...grammars.spec import KIND_OF_SUFFIX, GrammarSpec, read_grammar_file, resolve_grammar

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
    from ...grammars.errors import GrammarError
    from ...grammars.spec import resolve_grammar
    from ...presets.settings import preset_folder

    value = {} if preset.grammar is None else preset.grammar
    try:
        resolve_grammar(value, grammar_folders(), preset_folder(preset)).check()
    except GrammarError as error:
        raise error.within(preset.origin) from None

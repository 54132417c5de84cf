"""From flags and presets to the grammar of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..options.run_options import Options, RunOptions

if TYPE_CHECKING:
    from ...engine import Model
    from ...grammars import Constraint, GrammarSpec
    from ...presets import Preset, Settings

# Flag, the field of RunOptions that holds it, and the key of a preset's table that says the same.
FLAGS = (
    ("--grammar", "grammar", None),
    ("--grammar-file", "grammar_file", "file"),
    ("--json-schema", "json_schema", "json_schema"),
    ("--json-schema-file", "json_schema_file", "json_schema_file"),
    ("--regex", "regex", "regex"),
    ("--lark-file", "lark_file", "lark_file"),
)


def grammar_flag(options: Options) -> tuple[str, Any] | None:
    """The flag that names a grammar, and what a preset would say instead; two of them are refused."""
    given = [(flag, field, key) for flag, field, key in FLAGS if getattr(options, field, None) is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"{given[0][0]} and {given[1][0]} each give a grammar; one at a time")
    if not given:
        return None
    flag, field, key = given[0]
    value = str(getattr(options, field))
    return flag, value if key is None else {key: value}


def folders() -> list[tuple[str, Path]]:
    """Where grammars are looked for before the library: ./grammars, and the folder of the user's config."""
    from ...presets import config_folder

    mine = config_folder() / "grammars"
    return [("./grammars", Path("grammars")), (str(mine), mine)]


def spec_of(options: RunOptions, settings: Settings) -> GrammarSpec | None:
    """The grammar of a run, checked as far as it can be without a model. Raises ``GrammarError``."""
    value = settings.grammar.value
    if value is None:
        for flag, given in (
            ("--grammar-root", options.grammar_root),
            ("--grammar-after", options.grammar_after),
            ("--grammar-complete", options.grammar_complete or None),
        ):
            if given is not None:
                raise typer.BadParameter(f"{flag} needs a grammar")
        return None
    from ...grammars import GrammarError, grammar_table, resolve_grammar

    if options.grammar_root is not None:
        value = {**grammar_table(value), "root": options.grammar_root}
    if options.grammar_after is not None:
        value = {**grammar_table(value), "after": options.grammar_after}
    try:
        spec = resolve_grammar(value, folders(), settings.grammar_base)
        spec.check()
    except GrammarError as error:
        raise error.within(settings.grammar.origin) from None
    return spec


def check_grammar(preset: Preset) -> None:
    """Raise ``GrammarError`` for a preset whose grammar is wrong."""
    from ...grammars import GrammarError, resolve_grammar
    from ...presets import preset_folder

    try:
        resolve_grammar({} if preset.grammar is None else preset.grammar, folders(), preset_folder(preset)).check()
    except GrammarError as error:
        raise error.within(preset.place) from None


def constraint_of(spec: GrammarSpec, model: Model) -> Constraint:
    """Compile the grammar for the model, in a thread."""
    from ...grammars import BackgroundConstraint

    vocabulary = model.vocabulary
    constraint = BackgroundConstraint(lambda: spec.start(vocabulary), spec.description)
    if spec.names_tokens or spec.after is not None:
        constraint.wait()  # only the vocabulary can show its errors, and they come before the prompt is read
    return constraint

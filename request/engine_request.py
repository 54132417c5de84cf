"""The request of the engine for resolved settings, which runs, chats and all other requests share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from ..engine.guidance import Guidance
from ..engine.request import ChatMessages, GenerationRequest
from ..engine.text_rules import TextRules
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..presets.setting_table import RULE_NAMES
from ..presets.settings import Settings

if TYPE_CHECKING:
    from ..grammars.spec import GrammarSpec


def make_request(
    settings: Settings,
    prompt: str | Sequence[int] | ChatMessages,
    grammar: GrammarSpec | None,
    seed: int,
) -> GenerationRequest:
    """Return the request for resolved settings; callers replace other fields, such as logprobs."""
    # If no length is set, a sentence of the grammar is completed even beyond the default length.
    return GenerationRequest(
        prompt,
        settings.steps,
        grammar,
        stop=settings["stop"].value,
        max_tokens=settings.token_limit,
        complete_sentence=grammar is not None and settings.has_default_length,
        seed=seed,
        rules=text_rules(settings),
    )


def text_rules(settings: Settings) -> TextRules:
    """Return the rules of a request for resolved settings."""
    # Raises ``PresetError``, ``ModelError``.
    values = {name: settings[name].value for name in RULE_NAMES}
    return TextRules.of(values | {"phases": settings.earlier_phases, "guidance": _guidance(settings)})


def _guidance(settings: Settings) -> Guidance | None:
    table, origin = settings["guidance"].value, settings["guidance"].origin
    if table is None:
        return None
    if "scale" not in table:
        advice = "add --cfg-scale 1.5" if origin.startswith("--") else "set its scale, such as 1.5"
        raise PresetError("guidance has no scale", origin=origin, advice=advice)
    model = table.get("model")
    try:
        path = None if model is None else _path_of_model(model)
    except ModelError as error:
        raise error.within(origin) from None
    return Guidance(float(table["scale"]), table.get("negative_prompt"), path)


@cache
def _path_of_model(name: str) -> str:
    """Return the path of a model, which is searched for only once, because a batch has many requests."""
    from ..models.resolve import resolve_files
    from ..presets.user_config import user_config

    files = resolve_files(name, user_config().model_folders)
    if files.adapters:
        raise ModelError(
            f"{name}: the model of a negative prompt is read without adapters, and this one has"
            f" {files.adapters[0]}; name its file {files.path} to leave the adapter out"
        )
    return str(files.path)

"""Which model a run would take, before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import flag_sentence, note
from ..options.model import ModelOptions
from .model import find_model_file


@dataclass(frozen=True)
class ModelChoice:
    """The model of a run that has not begun. ``name``: as outputs name it; ``origin``: what chose it."""

    name: str
    origin: str


def chosen_model(options: ModelOptions) -> ModelChoice:
    """Return the model that the options, the environment or the user's config name; nothing is downloaded.

    One that is not here is named as it was typed, and a note says what is wrong or how it comes here.
    """
    from ...engine import ModelError, locate
    from ...engine.model_files.model_name import model_name
    from ...presets import user_config

    config, text = user_config(), options.model_text
    try:
        path, origin = locate(text, config.model)
    except ModelError as error:
        note(flag_sentence(error))
        return ModelChoice("none", "default")
    typed, origin = text or str(path), "-hf" if options.hub_repository is not None else origin
    try:
        path = find_model_file(text)
        if path.is_file():
            return ModelChoice(model_name(path), origin)
        note(f"{typed}: there is no such file")
    except ModelError as error:
        note(flag_sentence(error))
    return ModelChoice(typed, origin)

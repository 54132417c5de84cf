"""Which model a run would take, before it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import flag_sentence, note
from ..options.model import ModelOptions
from .model import find_model_file

if TYPE_CHECKING:
    from ...presets.settings import SettingValue


def chosen_model(options: ModelOptions) -> SettingValue:
    """Return the model that the options, the environment or the user's config name, and what chose it.

    Nothing is downloaded. A model that is not here is named as it was typed, and a note says what is wrong, or how
    it comes here.
    """
    from ...models.errors import ModelError
    from ...models.folders import locate
    from ...models.listing import model_name
    from ...presets.settings import SettingValue
    from ...presets.user_config import user_config

    config, text = user_config(), options.model_text
    try:
        path, origin = locate(text, config.model)
    except ModelError as error:
        note(flag_sentence(error))
        return SettingValue("none", "default")
    typed, origin = text or str(path), "-hf" if options.hub_repository is not None else origin
    try:
        path = find_model_file(text)
        if path.is_file():
            return SettingValue(model_name(path), origin)
        note(f"{typed}: there is no such file")
    except ModelError as error:
        note(flag_sentence(error))
    return SettingValue(typed, origin)

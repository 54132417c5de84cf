"""The chat template that the command line or a line of a batch gives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...common.errors import UsageError
from ..jobs.sources import chat_template_source
from ..options.given import GivenFlags
from ..options.prompt import TemplateOptions

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...engine.templates import ChatTemplate


class ChatTemplateFlags:
    """The flags ``--chat-template`` and ``--chat-template-kwargs``, read before the model is loaded.

    Args:
        options: the values of the flags.
        given: the flags as they were typed, for messages.

    Attributes: ``source``: see `open_chat_template`; ``variables``. None: not given.

    Raises ``UsageError``.
    """

    def __init__(self, options: TemplateOptions, given: GivenFlags) -> None:
        self.source: str | None = None
        self.variables: dict[str, Any] | None = None
        if options.chat_template_kwargs is not None:
            self.variables = _parse_variables(options.chat_template_kwargs)
        if options.chat_template is not None:
            flag = given.names.get("chat_template", "--chat-template")
            self.source = _read_flag(flag, options.chat_template, self.variables)

    def open(self, model: Model) -> ChatTemplate | None:
        """The template of these flags; None: neither is given. Raises ``ModelError``."""
        from ...engine.templates import open_chat_template

        if self.source is None and self.variables is None:
            return None
        return open_chat_template(model, self.source, self.variables)


def _read_flag(flag: str, text: str, variables: dict[str, Any] | None) -> str:
    from ...common.errors import LogitsmithError
    from ...engine.templates import check_chat_template

    try:
        source = chat_template_source(text, is_name_meant=flag == "--chat-template")
        check_chat_template(source, variables)
        return source
    except LogitsmithError as error:
        raise UsageError(f"{flag}: {error}") from None


def _parse_variables(text: str) -> dict[str, Any]:
    from ...common.strict_json import json_problem, parse_strict_json

    example = '{"enable_thinking": false}'
    try:
        variables = parse_strict_json(text)
    except ValueError as error:
        why = json_problem(error) if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(f"--chat-template-kwargs is not JSON, such as {example}: {why}") from None
    if not isinstance(variables, dict):
        raise UsageError(f"--chat-template-kwargs is no JSON object, such as {example}")
    return variables

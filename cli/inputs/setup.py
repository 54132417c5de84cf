"""The setup of a command that runs a model: its options, its settings and its grammar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ..flags import Options
from ..options.sampling import ConstraintOptions, FullSamplingOptions
from .settings import grammar_spec, resolve_run_settings

if TYPE_CHECKING:
    from ...grammars.spec import GrammarSpec
    from ...presets.settings import Settings

CommandOptions = TypeVar("CommandOptions", bound=Options)


@dataclass(frozen=True)
class Setup(Generic[CommandOptions]):
    """The options of a command, and what follows from them and from the preset."""

    options: CommandOptions
    settings: Settings
    grammar: GrammarSpec | None


def resolve_setup(
    options: CommandOptions,
    sampling: FullSamplingOptions,
    constraint: ConstraintOptions,
    metadata: Mapping[str, str] | None,
) -> Setup[CommandOptions]:
    """Return the setup of a command line; ``metadata``: of the GGUF file, for ``--preset model`` only."""
    settings = resolve_run_settings(options, sampling, metadata)
    return Setup(options, settings, grammar_spec(constraint, settings))

"""Answers to questions with a closed list of options, from the model's probabilities of the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .answers import Answer as Answer, OptionCalibration as OptionCalibration
    from .calibration import Calibration as Calibration
    from .decider import Decider as Decider, DecideSettings as DecideSettings, Decision as Decision, Usage as Usage
    from .errors import QuestionError as QuestionError
    from .questions import (
        Option as Option,
        Question as Question,
        choice as choice,
        predicate as predicate,
        read_questions as read_questions,
        score as score,
    )
    from .run import Outcome as Outcome, decide as decide
    from .wording import DEFAULT_TEMPLATE as DEFAULT_TEMPLATE, Wording as Wording

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".answers": ("Answer", "OptionCalibration"),
        ".calibration": ("Calibration",),
        ".decider": ("Decider", "DecideSettings", "Decision", "Usage"),
        ".errors": ("QuestionError",),
        ".questions": ("Option", "Question", "choice", "predicate", "read_questions", "score"),
        ".run": ("Outcome", "decide"),
        ".wording": ("DEFAULT_TEMPLATE", "Wording"),
    },
)

"""Answers to questions with a closed list of options, from the model's probabilities of the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .answers import Answer as Answer, OptionCalibration as OptionCalibration
    from .calibration import (
        Calibration as Calibration,
        Measured as Measured,
        Quality as Quality,
        QuestionCalibration as QuestionCalibration,
        read_calibration as read_calibration,
    )
    from .decider import Decider as Decider, DecideSettings as DecideSettings, Decision as Decision, Usage as Usage
    from .errors import QuestionError as QuestionError
    from .fitting import LabelledAnswers as LabelledAnswers, fit_calibration as fit_calibration
    from .labels import label_indices as label_indices
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
        ".calibration": ("Calibration", "Measured", "Quality", "QuestionCalibration", "read_calibration"),
        ".decider": ("Decider", "DecideSettings", "Decision", "Usage"),
        ".errors": ("QuestionError",),
        ".fitting": ("LabelledAnswers", "fit_calibration"),
        ".labels": ("label_indices",),
        ".questions": ("Option", "Question", "choice", "predicate", "read_questions", "score"),
        ".run": ("Outcome", "decide"),
        ".wording": ("DEFAULT_TEMPLATE", "Wording"),
    },
)

"""The calibration of answers: a temperature, and a bias an option, fitted to labelled inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine.model import Model
from .answers import OptionCalibration
from .errors import QuestionError
from .questions import Question


@dataclass(frozen=True)
class Calibration:
    """The calibration of some questions, for one model.

    Attributes:
        model: the fingerprint of the model.
        questions: the questions, with their calibrations.
    """

    model: str
    questions: Sequence[tuple[Question, OptionCalibration]]

    def check(self, model: Model, questions: Sequence[Question]) -> None:
        """Raise ``QuestionError`` if the calibration is for another model or other questions."""
        if self.model != model.identity()["fingerprint"]:
            raise QuestionError("the calibration is for another model")
        if list(questions) != [question for question, _ in self.questions]:
            raise QuestionError("the calibration is for other questions")

    def of(self, number: int) -> OptionCalibration:
        """Return the calibration of a question."""
        return self.questions[number][1]

"""`gen decide`: the probabilities of the answers to questions about a text, or about each row of a table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.strict_json import json_line
from ..command_options import takes_options
from ..inputs.decisions import make_decider, read_plan
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.prompt import read_prompt
from ..interrupt import interruptible
from ..options.decide import DecideFormat, DecideOptions
from .decide_fit import fit
from .decide_table import decide_table

if TYPE_CHECKING:
    from ...decide.answers import Answer
    from ...jobs.decisions import DecisionPlan

_PROMPTS_WITH_BAR = 8  # fewer are read in a moment
# exit codes of --exit-code
_NO = 10
_UNSURE = 11
_YES_FROM = 0.5  # a predicate is true from this probability on


@takes_options(DecideOptions)
def decide(options: DecideOptions) -> None:
    """Answer questions with a closed list of answers by the model's probabilities.

    The probability of an option is that of its whole text, in each spelling that means the same, and of the end
    after it. A table gets a result for each row.

      gen decide "I was charged twice!" --predicate "The customer complains."

      gen decide -f mail.txt --choice "What is it about?" --options billing --options cancellation

      gen decide "Please hurry" --predicate "It is urgent." --exit-code && ./page-someone

      gen decide --table mails.csv --column body --questions q.yaml -o out.csv

      gen decide --fit labelled.jsonl --questions q.yaml -o cal.json
    """
    show_llama_cpp_messages(options.log)
    plan = read_plan(options)
    if options.exit_code and len(plan.questions) > 1:
        raise UsageError(f"--exit-code is for a single question, and there are {len(plan.questions)}")
    if options.table is not None:
        decide_table(options, plan, options.table)
    elif options.fit is not None:
        fit(options, plan, options.fit)
    else:
        _decide_text(options, plan, read_prompt(options.input))


def _decide_text(options: DecideOptions, plan: DecisionPlan, text: str) -> None:
    """Print the answers about one text."""
    from ...decide.run import decide as decide_inputs
    from ..render.decisions import show_answers
    from ..render.progress import counting_bar

    with (
        interruptible() as interrupt,
        load_model(options.model, interrupt, slots=options.parallel) as model,
        interrupt.graceful_shutdown(),
    ):
        decider = make_decider(plan, model)
        prompt_count = len(decider.places())
        slots = options.parallel or min(model.default_parallel, prompt_count)
        is_long = prompt_count >= _PROMPTS_WITH_BAR
        with counting_bar("Asking", prompt_count, "prompts", is_needed=is_long) as advance_bar:

            def report(_count: int) -> None:
                interrupt.raise_if_requested()
                advance_bar()

            (outcome,) = decide_inputs(decider, [text], slots, progress=report)
        decision = outcome.decision
        if options.format in (None, DecideFormat.text):
            show_answers(decision.answers, model.vocabulary.pieces.__getitem__ if options.trace else None)
        else:
            answers = [answer.as_json(with_tokens=options.trace) for answer in decision.answers]
            fields = {"answers": answers, "usage": decision.usage.as_json(), "exactness": str(decision.exactness)}
            sys.stdout.write(json_line(fields))
    if options.exit_code:
        raise typer.Exit(_exit_code(decision.answers[0]))


def _exit_code(answer: Answer) -> int:
    if answer.is_unsure:
        return _UNSURE
    is_no = answer.question.type == "predicate" and answer.probabilities[0] < _YES_FROM
    return _NO if is_no else 0

"""Several texts of one prompt, drawn or searched: their headings, lines and choices."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Literal, Self

from ...common.text import count_noun, short_repr
from ..options.output import Format, OutputOptions
from ..text import terminal_safe
from .answers import AnswerWriter
from .stats import confidence_lines, draft_lines, model_lines, speed_line

if TYPE_CHECKING:
    from ...engine.request import GenerationRequest
    from ...logprobs.events import Done, Event
    from ..inputs.prompt import PreparedPrompt


_SHOWN_ANSWERS = 5


class SampleWriter:
    """A writer of the texts, one after another."""

    number_name: Literal["sample", "beam"] = "sample"

    def __init__(
        self,
        output: OutputOptions,
        prompt: PreparedPrompt,
        command: str,
        requests: Sequence[GenerationRequest],
        *,
        shows_texts: bool = True,
    ) -> None:
        # ``shows_texts``: False if texts are only counted in the format of text
        self.count = 0  # number of texts so far
        self._is_hidden = output.format is Format.text and not shows_texts
        self._output = output
        self._requests = requests
        self._answers = AnswerWriter(output, prompt, command, sys.stdout, self.number_name)
        self._dones: list[Done] = []
        self._start = perf_counter()

    def write(self, events: list[Event]) -> Done:
        """Write one text; return its last event."""
        from ...logprobs.events import Done

        done = events[-1]
        if not isinstance(done, Done):
            raise TypeError("the run ended without a Done event")
        if not self._is_hidden:
            self._answers.write(events, self._heading(self.count, done))
        self._dones.append(done)
        self.count += 1
        return done

    def _heading(self, index: int, done: Done) -> str:
        """Return the line before a text, whose ``index`` counts from 0."""
        return f"--- {index + 1} of {len(self._requests)}, seed {self._requests[index].seed} ---\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._answers.__exit__(error_type)

    def write_vote(self, extract: re.Pattern[str] | None) -> bool:
        """Write the answer that most texts give; return False if no text gives one."""
        # ``extract`` finds the answer in a text; None: the answer is the whole text.
        from ...common.strict_json import json_line
        from ...jobs.samples import count_votes
        from ..messages import print_message

        vote = count_votes([done.text for done in self._dones], extract)
        if self._output.format is Format.jsonl:
            sys.stdout.write(json_line({"event": "vote", **vote.as_json()}))
        elif vote.answers:
            print(terminal_safe(vote.answers[0].text, sys.stdout))
            shares = (
                f"{short_repr(answer.text)} {len(answer.samples)} ({vote.share(answer):.0%})"
                for answer in vote.answers[:_SHOWN_ANSWERS]
            )
            more = f" … {len(vote.answers):,} answers" if len(vote.answers) > _SHOWN_ANSWERS else ""
            print_message(f"gen: {count_noun(vote.sample_count, 'text')}: {', '.join(shares)}{more}")
        sys.stdout.flush()
        if not vote.answers:
            print_message(f"gen: none of {count_noun(vote.sample_count, 'text')} has an answer")
        return bool(vote.answers)

    def show_stats(self, model_name: str, device: str) -> None:
        # the speed of all texts together
        seconds = perf_counter() - self._start
        first_seed = self._requests[0].seed
        last_seed = self._requests[self.count - 1].seed
        lines = [
            *model_lines(model_name, device),
            speed_line("together", sum(done.completion_tokens for done in self._dones), seconds),
            *draft_lines(self._dones),
            *confidence_lines(self._dones),
            f"samples     {count_noun(self.count, 'text')}, seeds {first_seed} to {last_seed}",
        ]
        print("\n".join(lines), file=sys.stderr)


class BeamWriter(SampleWriter):
    """A writer of the texts of a beam search, the best first. A single text has no heading."""

    number_name = "beam"

    def _heading(self, index: int, done: Done) -> str:
        count = len(self._requests)
        return "" if count == 1 else f"--- {index + 1} of {count}, score {done.score:.4f} ---\n"

    def show_stats(self, model_name: str, device: str) -> None:
        best = self._dones[0]
        settings = self._requests[0].beams
        if settings is None:
            raise TypeError("the request has no beam search")
        scores = ", ".join(f"{done.score:.4f}" for done in self._dones)
        lines = [
            *model_lines(model_name, device),
            speed_line("prompt", best.prompt_tokens, best.timings.prompt),
            speed_line("best text", best.completion_tokens, best.timings.generation),
            f"beams       {settings.beam_count:,}, length penalty {settings.length_penalty:g}, scores {scores}",
            f"finish      {best.finish_reason}",
        ]
        print("\n".join(lines), file=sys.stderr)

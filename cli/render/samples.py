"""Several texts of one prompt, drawn or searched: their headings, lines and choices."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Literal, Self

from ...common.text import count_noun, short_repr
from ..options.output import Format, OutputOptions
from .run import draft_lines, render_text, speed_line, terminal_safe

if TYPE_CHECKING:
    from ...engine.request import GenerationRequest
    from ...logprobs.events import Done, Event
    from ..inputs.prompt import PreparedPrompt


_SHOWN_ANSWERS = 5


class SampleWriter:
    """A writer of the texts, one after another. The formats of APIs are written at the end, as one answer.

    Attributes:
        count: number of texts so far.
    """

    def __init__(
        self,
        output: OutputOptions,
        prompt: PreparedPrompt,
        command: str,
        requests: Sequence[GenerationRequest],
        *,
        shows_texts: bool = True,
    ) -> None:
        self._shows_texts = shows_texts
        self.count = 0
        self._output, self._prompt, self._command, self._requests = output, prompt, command, requests
        self._runs: list[list[Event]] = []
        self._dones: list[Done] = []
        self._start = perf_counter()

    def write(self, events: list[Event]) -> Done:
        """Write one text; return its last event."""
        from ...logprobs.events import Done
        from ...logprobs.jsonl import stream_lines

        index, out = self.count, sys.stdout
        self.count += 1
        done = events[-1]
        if not isinstance(done, Done):
            raise TypeError("the run ended without a Done event")
        self._dones.append(done)
        match self._output.format:
            case Format.text if not self._shows_texts:
                pass
            case Format.text:
                out.write(self._heading(index, done))
                shown = self._prompt.shown if self._output.echo else ""
                render_text(events, out, shown, self._output.color.is_colored)
                out.write("" if out.isatty() or (shown + done.text).endswith("\n") else "\n")
            case Format.jsonl:
                lines = stream_lines(events, self._prompt.shown, self._command, index, self._number_name)
                out.writelines(lines)
            case _:
                self._runs.append(events)
        out.flush()
        return done

    _number_name: Literal["sample", "beam"] = "sample"
    """The field of a text's number in its lines of jsonl."""

    def _heading(self, index: int, done: Done) -> str:
        """Return the line before a text.

        Args:
            index: the number of the text, from 0.
            done: the last event of the text.
        """
        return f"--- {index + 1} of {len(self._requests)}, seed {self._requests[index].seed} ---\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None and self._runs:
            self._write_answer()

    def _write_answer(self) -> None:
        import secrets

        from ...common.strict_json import encode_json
        from ...logprobs import openai, other_apis

        answer_id, prompt, echo = secrets.token_hex(12), self._prompt.text, self._output.echo
        is_chat = prompt != self._prompt.shown
        match self._output.format:
            case Format.openai:
                bodies = [openai.text_completion(run, answer_id, prompt=prompt, echo=echo) for run in self._runs]
            case Format.openai_chat:
                bodies = [openai.chat_completion(run, answer_id) for run in self._runs]
            case Format.together:
                bodies = [
                    other_apis.together_completion(run, answer_id, prompt=prompt, echo=echo, chat=is_chat)
                    for run in self._runs
                ]
            case _:
                records = [other_apis.llama_server_completion(run, prompt=prompt) for run in self._runs]
                numbered = [record | {"index": index} for index, record in enumerate(records)]
                sys.stdout.write(encode_json(numbered) + "\n")
                return
        sys.stdout.write(encode_json(openai.merge_choices(bodies, len(bodies))) + "\n")
        sys.stdout.flush()

    def write_vote(self, extract: re.Pattern[str] | None) -> bool:
        """Write the answer that most texts give; return False if no text gives one.

        Args:
            extract: finds the answer in a text; None: the answer is the whole text.
        """
        from ...common.strict_json import encode_json
        from ...jobs.samples import count_votes
        from ..messages import print_message

        vote = count_votes([done.text for done in self._dones], extract)
        if self._output.format is Format.jsonl:
            sys.stdout.write(encode_json({"event": "vote", **vote.as_json()}) + "\n")
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

    def show_stats(self, model_name: str) -> None:
        """Print the model's name and the speed of all texts together to stderr."""
        seconds = perf_counter() - self._start
        first, last = self._requests[0].seed, self._requests[self.count - 1].seed
        lines = [
            terminal_safe(f"model       {model_name}", sys.stderr),
            speed_line("together", sum(done.completion_tokens for done in self._dones), seconds),
            *draft_lines(self._dones),
            f"samples     {count_noun(self.count, 'text')}, seeds {first} to {last}",
        ]
        print("\n".join(lines), file=sys.stderr)


class BeamWriter(SampleWriter):
    """A writer of the texts of a beam search, the best first. A single text has no heading."""

    _number_name = "beam"

    def _heading(self, index: int, done: Done) -> str:
        """Return the line before a text; empty if there is one text."""
        count = len(self._requests)
        return "" if count == 1 else f"--- {index + 1} of {count}, score {done.score:.4f} ---\n"

    def show_stats(self, model_name: str) -> None:
        """Print the model's name, the speed of the search and the scores to stderr."""
        best, settings = self._dones[0], self._requests[0].beams
        if settings is None:
            raise TypeError("the request has no beam search")
        scores = ", ".join(f"{done.score:.4f}" for done in self._dones)
        lines = [
            terminal_safe(f"model       {model_name}", sys.stderr),
            speed_line("prompt", best.prompt_tokens, best.timings.prompt),
            speed_line("best text", best.completion_tokens, best.timings.generation),
            f"beams       {settings.beam_count:,}, length penalty {settings.length_penalty:g}, scores {scores}",
            f"finish      {best.finish_reason}",
        ]
        print("\n".join(lines), file=sys.stderr)

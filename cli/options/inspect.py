"""The options of `gen inspect`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from ...common.errors import UsageError
from .color import COLOR_METAVAR, Color, read_color
from .flag import Options, argument, flag, options_class
from .limits import at_least
from .paths import refuse_same_file


class OneSource(StrEnum):
    """One of two distributions."""

    model = "model"
    chain = "chain"


@options_class
class InspectOptions(Options):
    """The options of `gen inspect`."""

    files: list[Path] | None = argument(
        "RUN.JSONL...",
        called="the run",
        help="What gen --format jsonl or gen batch wrote; one or several. [stdin]",
    )
    id: list[str] | None = flag(
        "--id", metavar="ID", help="Of a batch's results only the answer of this request; repeatable."
    )
    html: Path | None = flag(
        "--html", help="Write a page instead: a token at a click, step by step; - is stdout.", is_path=True
    )
    token: int | None = flag(
        "--token", metavar="N", help="The trace of token N, from 0, and its draw.", limit=at_least(0)
    )
    text: str | None = flag("--text", metavar="TEXT", help="The same of the first token that has this text.")
    top: int | None = flag(
        "--top", help="A table of the tokens, with this many alternatives each.", limit=at_least(0)
    )
    source: OneSource | None = flag("--logprobs-from", help="Which distribution, if the run has both. [model]")
    color: Color = flag(
        "--color",
        metavar=COLOR_METAVAR,
        reads=read_color,
        help="Tint the text; auto: on a terminal, without NO_COLOR. [auto]",
        default=Color.auto,
    )

    @property
    def needs_stdout(self) -> bool:
        """False for a page in a file."""
        return self.html is None or self.prints_page

    @property
    def prints_page(self) -> bool:
        """True if a page goes to stdout."""
        return str(self.html) == "-"

    def check(self) -> None:
        """Refuse flags of the terminal beside ``--html``, a page that replaces a run, and stdin twice."""
        files = self.files or []
        self._check_token()
        if self.html is not None:
            for name, is_given in (("--top", self.top is not None), ("--color", self.color is not Color.auto)):
                if is_given:
                    raise UsageError(f"{name} is for the terminal, and --html writes a page; leave one out")
            if not self.prints_page:
                refuse_same_file([("--html", self.html)], [("the run", file) for file in files])
        if files.count(Path("-")) > 1:
            raise UsageError("stdin (-) is named twice")

    def _check_token(self) -> None:
        """Refuse what the view of one token has no room for."""
        name = "--token" if self.token is not None else "--text" if self.text is not None else None
        if self.token is not None and self.text is not None:
            raise UsageError("--token and --text each name a token; give one")
        if self.text == "":
            raise UsageError("--text: an empty text is in every token")
        for other, is_given in (
            ("--html", self.html is not None),
            ("--top", self.top is not None),
            ("--color", self.color is not Color.auto),
            ("--logprobs-from", self.source is not None),
        ):
            if name is not None and is_given:
                raise UsageError(f"{name} shows the trace of one token; {other} has no effect there")

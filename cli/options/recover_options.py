"""What the command lines of `gen recover` and `gen recover-basis` said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from .recover_flags import Api, Method
from .run_options import ModelOptions, PromptOptions


@dataclass(frozen=True)
class EndpointOptions(ModelOptions):
    """Which endpoint, and how it is called."""

    endpoint: str | None
    api: Api | None
    api_model: str | None
    api_chat: bool
    tokenizer: Path | None
    key_env: str | None
    window: int | None
    pre_sampling: bool
    slot: int | None
    vocab_size: int | None
    rate: float | None
    timeout: float
    retries: int
    dry_run: bool


@dataclass(frozen=True)
class RecoverOptions(PromptOptions, EndpointOptions):
    """What `gen recover` was asked for."""

    method: Method
    top: int | None
    ids: str | None
    basis: Path | None
    eps: float
    tolerance: float
    repeats: int | None
    in_flight: int
    max_calls: int | None
    price: str | None
    output: Path | None
    checkpoint: Path | None
    resume: bool
    verify: int | None

    @property
    def kept_in(self) -> Path | None:
        """Where answers are kept while the run lasts."""
        if self.checkpoint is not None or self.output is None or str(self.output) == "-":
            return self.checkpoint
        return self.output.with_name(self.output.name + ".checkpoint")

    @property
    def tokens(self) -> list[int] | None:
        """The ids that were named. Raises ``typer.BadParameter``."""
        if self.ids is None:
            return None
        try:
            return [int(text) for text in self.ids.split(",")]
        except ValueError:
            raise typer.BadParameter(f"--ids: {self.ids!r} is not a list of token ids, such as 5,17") from None

    @property
    def prices(self) -> tuple[float, float] | None:
        """Dollars for a million tokens read and written. Raises ``typer.BadParameter``."""
        if self.price is None:
            return None
        try:
            numbers = [float(part) for part in self.price.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2) or not all(0 <= number < float("inf") for number in numbers):
            raise typer.BadParameter(f"--price: {self.price!r} is not one or two numbers ≥ 0, such as 0.5,1.5")
        return numbers[0], numbers[-1]


@dataclass(frozen=True)
class BasisOptions(ModelOptions):
    """What `gen recover-basis` was asked for."""

    output: Path
    rows: int | None
    vectors: list[Path] | None

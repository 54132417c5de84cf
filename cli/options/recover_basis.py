"""The options of `gen recover-basis`."""

from __future__ import annotations

from pathlib import Path

from ...common.errors import UsageError
from .flag import REQUIRED, Options, flag, options_class
from .given import GivenFlags
from .limits import at_least
from .model import LogOptions, ModelOptions
from .paths import refuse_same_file


@options_class
class BasisOptions(Options):
    """The options of `gen recover-basis`."""

    given: GivenFlags
    output: Path = flag("-o", "--output", metavar="FILE", help="Where the basis goes, an .npz.", default=REQUIRED)
    rows: int | None = flag(
        "--rows",
        metavar="N",
        help="Make it of N whole rows of the model, not of its matrix; 0 = enough.",
        limit=at_least(0),
    )
    vectors: list[Path] | None = flag(
        "--vectors", metavar="FILE.npz", help="Make it of whole recoveries; repeat for each."
    )
    model: ModelOptions
    log: LogOptions

    @property
    def needs_stdout(self) -> bool:
        """False: the basis goes to a file."""
        return False

    def check(self) -> None:
        """Refuse what cannot stand together, and a file that would be written over one that is read."""
        if self.rows is not None and self.vectors:
            raise UsageError("--rows and --vectors both say what the basis is made of; give one")
        if self.output.suffix != ".npz":
            raise UsageError(f"-o: {self.output} does not end in .npz")
        if self.vectors:
            self.given.refuse(ModelOptions, LogOptions, why="is for a model, and --vectors needs none")
        vectors = [("--vectors", path) for path in self.vectors or ()]
        refuse_same_file(written=[("-o", self.output)], read=[("-m", self.model.model_path), *vectors])

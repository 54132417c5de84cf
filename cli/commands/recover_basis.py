"""`gen recover-basis`: what all logprobs of a model have in common, for `gen recover --basis`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...common.errors import UsageError
from ..command_options import TypedFlags, reject_same_file, takes_options
from ..flags import REQUIRED, Options, at_least, flag, options_class
from ..inputs.model import load_model, show_llama_cpp_messages
from ..interrupt import Interrupt, interruptible
from ..messages import print_message
from ..options.model import LogOptions, ModelOptions

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...recover.basis import Basis


@options_class
class BasisOptions(Options):
    """The options of `gen recover-basis`."""

    typed_flags: TypedFlags
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
            self.typed_flags.reject(ModelOptions, LogOptions, why="is for a model, and --vectors needs none")
        vectors = [("--vectors", path) for path in self.vectors or ()]
        reject_same_file(written=[("-o", self.output)], read=[("-m", self.model.model_path), *vectors])


@takes_options(BasisOptions)
def recover_basis(options: BasisOptions) -> None:
    """Make a basis of a model's logits, by which a few logprobs give the whole row.

    It is made of the output matrix in a GGUF of the same model, or of whole rows of logprobs of a few more prompts
    than the model has dimensions: --rows reads them off a model here, --vectors takes what gen recover saved.
    """
    from ...recover.files import check_writable

    show_llama_cpp_messages(options.log)
    check_writable(options.output)
    with interruptible() as interrupt:
        basis = _make_basis(options, interrupt)
        basis.save(options.output)
        print_message(
            f"gen: {options.output}: {basis.vocab_size:,} tokens, {basis.rank:,} dimensions, of {basis.source}"
        )


def _make_basis(options: BasisOptions, interrupt: Interrupt) -> Basis:
    from ...recover.basis import Basis
    from ...recover.results import read_rows

    if options.vectors:
        return Basis.of_rows(read_rows(options.vectors), f"{len(options.vectors)} recoveries")
    with load_model(options.model, interrupt) as model:
        return _basis_of_model(model, options, interrupt)


def _basis_of_model(model: Model, options: BasisOptions, interrupt: Interrupt) -> Basis:
    from ...recover.basis import Basis, basis_from_rows, output_matrix
    from ..render.progress import recovery_bar

    if options.rows is None:
        return Basis.of_matrix(output_matrix(model.path), model.path.name, model.vocabulary.pieces)
    with recovery_bar("Reading rows") as progress:

        def report(done: int, total: int) -> None:
            interrupt.raise_if_requested()
            if progress is not None:
                progress(done, total)

        return basis_from_rows(model, options.rows or None, report)

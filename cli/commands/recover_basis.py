"""`gen recover-basis`: compute a basis of a model's logits, for `gen recover --basis`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.errors import UsageError
from ...common.files import check_writable
from ...common.flags import at_least
from ..command_options import TypedFlags, reject_same_file, takes_options
from ..flags import REQUIRED, Options, flag
from ..inputs.model import load_model, show_llama_cpp_messages
from ..interrupt import Interrupt, interruptible
from ..messages import print_message
from ..options.model import LogOptions, ModelOptions

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...recover.basis import Basis


@dataclass(frozen=True, kw_only=True)
class BasisOptions(Options):
    """The options of `gen recover-basis`."""

    typed_flags: TypedFlags
    output: Path = flag("-o", "--output", metavar="FILE", help="File of the basis, .npz.", default=REQUIRED)
    rows: int | None = flag(
        "--rows",
        metavar="N",
        help="Use N logit rows of the model instead of its output matrix; 0 = as many as needed.",
        limit=at_least(0),
    )
    vectors: list[Path] | None = flag(
        "--vectors", metavar="FILE.npz", help="Use a complete recovery instead of a model; repeat for each file."
    )
    model: ModelOptions
    log: LogOptions

    @property
    def needs_stdout(self) -> bool:
        """False, because the basis is written to a file."""
        return False

    def check(self) -> None:
        """Reject flags that cannot be combined, and an output file that is also an input file."""
        if self.rows is not None and self.vectors:
            raise UsageError("--rows and --vectors cannot be combined; give one of them")
        if self.output.suffix != ".npz":
            raise UsageError(f"-o: {self.output} must end in .npz")
        if self.vectors:
            self.typed_flags.reject(ModelOptions, LogOptions, why="is for a model, which --vectors does not use")
        vectors = [("--vectors", path) for path in self.vectors or ()]
        reject_same_file(written=[("-o", self.output)], read=[("-m", self.model.model_path), *vectors])


@takes_options(BasisOptions)
def recover_basis(options: BasisOptions) -> None:
    """Compute a basis of a model's logits, with which a few logprobs determine a complete row.

    The source is the output matrix in a GGUF of the same model, or complete rows of logprobs for a few more
    prompts than the model has dimensions. --rows computes such rows with a local model, --vectors reads them
    from files of gen recover.
    """
    show_llama_cpp_messages(options.log)
    check_writable(options.output)
    with interruptible() as interrupt:
        basis = _make_basis(options, interrupt)
        basis.save(options.output)
        print_message(
            f"gen: {options.output}: {basis.vocab_size:,} tokens, {basis.rank:,} dimensions, from {basis.source}"
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
    with recovery_bar("Computing rows") as progress:

        def report(done: int, total: int) -> None:
            interrupt.raise_if_requested()
            if progress is not None:
                progress(done, total)

        return basis_from_rows(model, options.rows or None, report)

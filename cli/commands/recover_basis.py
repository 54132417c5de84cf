"""`gen recover-basis`: what all logprobs of a model have in common, for `gen recover --basis`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import say
from ..inputs.model import load_model, show_llama_cpp_messages
from ..interrupt import Interrupt, interruptible
from ..options.recover_basis import BasisOptions
from ..options.signature import takes_options

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...recover.basis import Basis


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
        say(f"gen: {options.output}: {basis.vocab_size:,} tokens, {basis.rank:,} dimensions, of {basis.source}")


def _make_basis(options: BasisOptions, interrupt: Interrupt) -> Basis:
    from ...recover.basis import Basis
    from ...recover.results import read_rows

    if options.vectors:
        return Basis.of_rows(read_rows(options.vectors), f"{len(options.vectors)} recoveries")
    with load_model(options.model, interrupt) as model:
        return _basis_of_model(model, options, interrupt)


def _basis_of_model(model: Model, options: BasisOptions, interrupt: Interrupt) -> Basis:
    from ...recover.basis import Basis, basis_from_rows, output_matrix
    from ..render.progress import recovering

    if options.rows is None:
        return Basis.of_matrix(output_matrix(model.path), model.path.name, model.vocabulary.pieces)
    with recovering("Reading rows") as progress:

        def report(done: int, total: int) -> None:
            interrupt.raise_if_requested()
            if progress is not None:
                progress(done, total)

        return basis_from_rows(model, options.rows or None, report)

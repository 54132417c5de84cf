"""`gen recover-basis`: what all logprobs of a model have in common, for `gen recover --basis`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..errors import report_failures, say
from ..inputs.model import hear_llama_cpp, load_model
from ..interrupt import Interrupt, interruptible
from ..options import flags as o
from ..options import recover_flags as r
from ..options.recover_checks import check_basis, given
from ..options.recover_options import BasisOptions

if TYPE_CHECKING:
    from ...engine import Model
    from ...recover import Basis


def recover_basis(
    context: typer.Context,
    output: r.BasisOutput,
    rows: r.BasisRows = None,
    vectors: r.BasisVectors = None,
    model: o.ModelPath = None,
    context_size: o.ContextSize = None,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = 0,
    batch_size: o.BatchSize = 512,
    lora: o.Lora = None,
    no_mmap: o.NoMmap = False,
    mlock: o.Mlock = False,
    verbose: o.Verbose = False,
) -> None:
    """Make a basis of a model's logits, by which few logprobs tell a whole row.

    It is made of the output matrix in a GGUF of the same model, or of whole rows of logprobs of a few more prompts
    than the model has dimensions: --rows reads them off a model here, --vectors takes what gen recover saved.
    """
    options = BasisOptions.of(locals())
    check_basis(options, given(context))
    with report_failures(), interruptible() as interrupt:
        basis = _basis(options, interrupt)
        basis.save(options.output)
        say(f"gen: {options.output}: {basis.vocab_size:,} tokens, {basis.rank:,} dimensions, of {basis.source}")


def _basis(options: BasisOptions, interrupt: Interrupt) -> Basis:
    from ...recover import Basis, check_writable, read_rows

    hear_llama_cpp(options)
    check_writable(options.output)
    if options.vectors:
        return Basis.of_rows(read_rows(options.vectors), f"{len(options.vectors)} recoveries")
    with load_model(options, interrupt) as model:
        return _of_model(model, options, interrupt)


def _of_model(model: Model, options: BasisOptions, interrupt: Interrupt) -> Basis:
    from ...recover import Basis, basis_from_rows, output_matrix
    from ..render.progress import recovering

    if options.rows is None:
        return Basis.of_matrix(output_matrix(model.path), model.path.name, model.vocabulary.pieces)
    with recovering("Reading rows") as progress:

        def step(done: int, total: int) -> None:
            interrupt.raise_if_requested()
            if progress is not None:
                progress(done, total)

        return basis_from_rows(model, options.rows or None, step)

"""`gen` with a record of the requests that reach the engine: `python -m tests.requests.recorder FILE serve …`.

A line of the file has the id of a request and its description, which is the same whether its chain and its grammar
are already built, as in the server, or not, as in a batch. The prompt is not described.
"""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

from logitsmith.cli import main
from logitsmith.engine import BatchEngine
from logitsmith.samplers import Chain

DESCRIBED_APART = {"chain", "constraint", "logprobs"}
NOT_DESCRIBED = {"id", "prompt", "exact_reuse", "confidence"}
"""Only a server lets a request reuse answers, and only some answers tell their confidence."""


def describe(request):
    """Return the fields of a request as text."""
    steps = (
        request.chain.steps
        if isinstance(request.chain, Chain)
        else [step.sampler for step in request.chain if not step.is_off]
    )
    logprobs = None if request.logprobs.top_count is None else replace(request.logprobs, label="")
    others = {
        field.name: repr(getattr(request, field.name))
        for field in fields(request)
        if field.name not in DESCRIBED_APART | NOT_DESCRIBED
    }
    grammar = None if request.constraint is None else request.constraint.description
    return {
        **others,
        "chain": [f"{step.about.name} {step!r}" for step in steps],
        "constraint": grammar,
        "logprobs": repr(logprobs),
    }


if __name__ == "__main__":
    record, *arguments = sys.argv[1:]
    add = BatchEngine.add

    def recorded_add(self, request):
        with Path(record).open("a") as file:
            file.write(json.dumps([request.id, describe(request)]) + "\n")
        add(self, request)

    BatchEngine.add = recorded_add
    sys.argv = ["gen", *arguments]
    main()

"""Equal logits: here the lower id stays, and comes first; llama.cpp's sorts are unstable."""

import math

import pytest
from logitsmith.samplers import build

from ..oracle.native import NativeChain
from .rows import row

LN2 = math.log(2)
EQUAL = [0.0] * 300

# a step, logits, the ids that are left
TIES = {
    "top_k": ({"top_k": {"k": 4}}, [*EQUAL, 1.0], [300, 0, 1, 2]),
    "top_p": ({"top_p": {"p": 0.01}}, [0.0] * 2000, list(range(20))),
    "typical": ({"typical": {"p": 0.5}}, EQUAL, list(range(151))),
    # A surprise of 1 bit and eight of 4, an entropy of 2.5: each score is 1.5 bits, exactly.
    "typical, equal scores": ({"typical": {"p": 0.6}}, [*[-3 * LN2] * 8, 0], [8, 0, 1]),
    "dynatemp": ({"dynatemp": {"range": 0.5}}, EQUAL, list(range(300))),
    "mirostat_v2": ({"mirostat_v2": {"tau": 5.0}}, EQUAL, list(range(300))),
    "xtc": ({"xtc": {"probability": 1.0, "threshold": 0.001}}, [0.0] * 100, [99]),
}


@pytest.mark.parametrize(("step", "logits", "ids"), TIES.values(), ids=TIES)
def test_the_lower_id_comes_first_where_llama_cpp_takes_any(step, logits, ids):
    chain = build([step])
    left = chain.apply(row(*logits))
    chain.draw(left)
    assert left.ids.tolist() == ids
    with NativeChain([step], vocabulary=len(logits)) as native:
        theirs = native.apply(row(*logits)).ids.tolist()
    assert len(theirs) == len(ids)
    assert theirs != ids, "llama.cpp's sort became stable: say so in the docstring"

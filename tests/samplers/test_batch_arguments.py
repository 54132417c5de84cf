"""The arguments that the batch sampler accepts and rejects: tables 1 to 4 of its source."""

import inspect

import numpy as np
import pytest
from logitsmith.samplers import SamplingError
from logitsmith.samplers.batch import SamplingData, SamplingParam, sample

from .rows import make_row

LOGITS = np.stack([make_row("normal", 100, seed) for seed in range(2)])
TEXT = np.zeros((2, 3), np.int64)


def refuses(message, call, *args, **kwargs):
    with pytest.raises(SamplingError) as caught:
        call(*args, **kwargs)
    assert str(caught.value).startswith(message)


def param(**arrays):
    return SamplingParam.from_numpy(**arrays, to_tensor=np.asarray)


def data(**arrays):
    return SamplingData.from_numpy(**arrays, to_tensor=np.asarray)


SIGNATURES = {
    "SamplingData": (
        SamplingData.from_numpy,
        {"all_input_ids": None, "output_ids": None, "to_tensor": None, "is_prefill": True, "request_ids": None},
    ),
    "SamplingParam": (
        SamplingParam.from_numpy,
        dict.fromkeys(
            [
                "repetition_penalty",
                "frequency_penalty",
                "presence_penalty",
                "temperature",
                "top_k",
                "top_p",
                "seed",
                "do_sample",
                "to_tensor",
            ]
        ),
    ),
    "sample": (sample, {"logits": inspect.Parameter.empty, "sampling_data": None, "sampling_param": None}),
}


@pytest.mark.parametrize(("function", "parameters"), SIGNATURES.values(), ids=SIGNATURES)
def test_names_order_and_defaults(function, parameters):
    found = inspect.signature(function).parameters
    assert [(name, it.default) for name, it in found.items()] == list(parameters.items())


def test_everything_but_the_logits_may_be_left_out():
    best = LOGITS.argmax(axis=1).tolist()
    for arguments in (
        (),
        (None, None),
        (SamplingData.from_numpy(), SamplingParam.from_numpy()),
        (SamplingData.from_numpy(TEXT, None, np.asarray), None),
        (SamplingData.from_numpy(None, TEXT, np.asarray, False, np.array([1, 2])), param()),
    ):
        tokens, values = sample(LOGITS, *arguments)
        assert tokens.tolist() == best
        assert values is None


F = np.float32
TAKEN = {
    "repetition_penalty": [np.array([1e-30, 2.5]), np.array([1, 2], F), np.array([1, 2], np.float16)],
    "frequency_penalty": [np.array([-1.0, 0]), np.array([3e38, -3e38])],
    "presence_penalty": [np.array([-1.0, 0]), np.array([3e38, -3e38], F)],
    "temperature": [np.array([1e-45, 1e30]), np.array([0.5, 2], np.float16)],
    "top_k": [np.array([1, 99]), np.array([1, 99], np.uint8), np.array([1, 99], np.int32)],
    "top_p": [np.array([1e-45, 1.0]), np.array([0.5, 1], np.float16)],
    "seed": [np.array([0, 2**63 - 1]), np.array([0, 2**64 - 1], np.uint64), np.array([0, 127], np.int8)],
    "do_sample": [np.array([True, False])],
}


@pytest.mark.parametrize(
    ("name", "values"),
    [pytest.param(name, it, id=f"{name}-{it}-{it.dtype}") for name, taken in TAKEN.items() for it in taken],
)
def test_each_parameter_alone_is_taken(name, values):
    tokens, _ = sample(LOGITS, SamplingData.from_numpy(TEXT, TEXT, np.asarray), param(**{name: values}))
    assert ((tokens >= 0) & (tokens < 100)).all()


# values of row 1, by parameter
OUT_OF_RANGE = {
    "repetition_penalty": [0.0, -1.0, np.nan, np.inf],
    "temperature": [0.0, -0.5, np.nan, np.inf, 1e39],
    "top_p": [0.0, -0.1, 1.01, np.nan],
    "frequency_penalty": [np.nan, -np.inf, 1e39],
    "presence_penalty": [np.nan, np.inf, -1e39],
    "top_k": [0, -1],
    "seed": [-1, -(2**63)],
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_with_its_row(name):
    for wrong in OUT_OF_RANGE[name]:
        refuses(f"{name}: row 1: {wrong} is not ", param, **{name: np.array([1, wrong])})


@pytest.mark.parametrize("top_k", [100, 101, 2**40, np.uint64(2**64 - 1)])
def test_a_top_k_of_the_vocabulary_or_more_is_refused(top_k):
    given = param(top_k=np.array([99, top_k], np.asarray(top_k).dtype))
    refuses(
        f"top_k: row 1: {min(top_k, 2**63 - 1)} is not > 0 and < 100, the vocabulary", sample, LOGITS, None, given
    )


FLOATS, INTEGERS, BOOLEANS = np.ones(2), np.ones(2, np.int64), np.ones(2, bool)
KINDS = {
    **dict.fromkeys(
        ["repetition_penalty", "frequency_penalty", "presence_penalty", "temperature", "top_p"], FLOATS
    ),
    **dict.fromkeys(["top_k", "seed"], INTEGERS),
    "do_sample": BOOLEANS,
}


@pytest.mark.parametrize(("name", "fitting"), KINDS.items(), ids=KINDS)
def test_another_dtype_shape_or_type_is_refused(name, fitting):
    others = [it for it in (FLOATS, INTEGERS, BOOLEANS) if it is not fitting]
    for wrong in (*others, fitting.tolist(), fitting[None]):
        refuses(f"{name}: expected ", param, **{name: wrong})
    refuses(f"to_tensor: required with {name}", SamplingParam.from_numpy, **{name: fitting})
    refuses("to_tensor: expected a function, got int", SamplingParam.from_numpy, **{name: fitting}, to_tensor=3)


TEXTS = [[[1]], np.zeros(3, np.int64), np.zeros((2, 2)), np.zeros((2, 2), bool), np.ma.masked_equal([[1, 2]], 2)]


@pytest.mark.parametrize("name", ["all_input_ids", "output_ids"])
def test_a_text_that_is_none_is_refused(name):
    for wrong in TEXTS:
        refuses(f"{name}: expected integers of shape (B, L), got ", data, **{name: wrong})
    refuses(f"to_tensor: required with {name}", SamplingData.from_numpy, **{name: TEXT})
    refuses("to_tensor: expected a function, got str", SamplingData.from_numpy, **{name: TEXT}, to_tensor="x")


THREE_ROWS = {
    "all_input_ids": (data(all_input_ids=TEXT[[0, 1, 1]]), None),
    "output_ids": (data(output_ids=TEXT[[0, 1, 1]]), None),
    "request_ids": (data(request_ids=np.arange(3)), None),
    "seed": (None, param(seed=np.arange(3))),
    "do_sample": (None, param(do_sample=np.ones(3, bool))),
}
# a call, its arguments, and how the message begins
REFUSED = {
    "is_prefill": (data, {"is_prefill": 1}, "is_prefill: expected true or false, got int"),
    **{
        f"request_ids, {it!r}": (data, {"request_ids": it}, "request_ids: expected integers of shape (B,), got ")
        for it in ([1], np.ones(2), np.ones((1, 2), int), np.ma.masked_equal([1, 2], 2))
    },
    "request_ids, twice": (
        data,
        {"request_ids": np.array([4, 5, 6, 5])},
        "request_ids: row 3: 5 is also the id of row 1",
    ),
    "rows": (
        data,
        {"all_input_ids": TEXT, "output_ids": TEXT[:1]},
        "output_ids: 1 rows, while all_input_ids has 2",
    ),
    "rows of request_ids": (
        data,
        {"output_ids": TEXT, "request_ids": np.arange(3)},
        "request_ids: 3 rows, while output_ids has 2",
    ),
    "rows of parameters": (
        param,
        {"temperature": np.ones(2), "top_k": np.ones(3, np.int64)},
        "top_k: 3 rows, while temperature has 2",
    ),
    **{
        f"rows of {name} and logits": (
            sample,
            {"logits": LOGITS, "sampling_data": texts, "sampling_param": params},
            f"{name}: 3 rows, while logits has 2",
        )
        for name, (texts, params) in THREE_ROWS.items()
    },
    "sampling_data": (sample, {"logits": LOGITS, "sampling_data": {}}, "sampling_data: expected SamplingData or "),
    "sampling_param": (
        sample,
        {"logits": LOGITS, "sampling_param": [1]},
        "sampling_param: expected SamplingParam",
    ),
    **{
        f"logits, {kind}": (sample, {"logits": it}, "logits: expected ")
        for kind, it in {
            "list": [[1.0]],
            "None": None,
            "1-D": LOGITS[0],
            "3-D": LOGITS[None],
            "no vocabulary": LOGITS[:, :0],
            "integers": LOGITS.astype(int),
            "booleans": LOGITS > 0,
            "complex": LOGITS + 0j,
        }.items()
    },
    "built directly, no to_tensor": (
        SamplingParam,
        {"temperature": np.ones(2)},
        "to_tensor: required with temperature",
    ),
    "built directly, out of range": (
        SamplingParam,
        {"temperature": np.array([1, -1.0]), "to_tensor": np.asarray},
        "temperature: row 1: -1.0 is not > 0 and finite",
    ),
    "built directly, rows": (
        SamplingData,
        {"all_input_ids": TEXT, "output_ids": TEXT[:1], "to_tensor": np.asarray},
        "output_ids: 1 rows, while all_input_ids has 2",
    ),
}


@pytest.mark.parametrize(("call", "arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refusal(call, arguments, message):
    refuses(message, call, **arguments)


ONE = np.ones(3)
WAYS = {
    "greedy": None,
    "all": param(temperature=ONE / 2),
    "top_k": param(top_k=np.full(3, 2)),
    "top_p": param(top_p=ONE / 2),
    "penalties": param(repetition_penalty=ONE * 2),
}
BAD = {"nan": "there is a NaN", "inf": "there is a +inf", "-inf": "every entry is -inf"}


@pytest.mark.parametrize("size", [4, 3000, 20_000])
@pytest.mark.parametrize(("value", "what"), BAD.items(), ids=BAD)
@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_cannot_be_sampled_is_named(way, value, what, size):
    logits = np.stack([make_row("normal", size, seed) for seed in range(3)])
    logits[1, slice(None) if value == "-inf" else size - 1] = float(value)
    text = np.full((3, 1), size - 1)  # a penalty must not hide it
    refuses(f"logits: row 1: {what}", sample, logits, data(all_input_ids=text, output_ids=text), WAYS[way])


def test_a_float64_beyond_float32_is_infinite():
    logits = np.array([[0.0, 1.0], [1.0, 1e300]])
    refuses("logits: row 1: there is a +inf", sample, logits)
    assert sample(-logits)[0].tolist() == [0, 0]


def test_a_penalty_that_leaves_no_number_is_named():
    text = np.array([[0, 0], [1, 1]])
    given = param(repetition_penalty=np.array([1, 1e-30]), frequency_penalty=np.array([0, 3e38]))
    texts = data(all_input_ids=text, output_ids=text)
    refuses("penalties: row 1: left no finite logit", sample, np.full((2, 3), 1e30, np.float32), texts, given)


NEEDY = {
    "repetition_penalty": np.array([1, 1.5]),
    "frequency_penalty": np.array([0, 0.5]),
    "presence_penalty": np.array([0, 0.5]),
    "seed": np.ma.masked_array([0, 5], mask=[True, False]),
}


@pytest.mark.parametrize("name", NEEDY)
def test_texts_that_are_needed(name):
    given = param(**{name: NEEDY[name]})
    message = f"output_ids: row 1 has a {name}, which requires them after the first token"
    if name == "repetition_penalty":  # which looks at the prompt, too
        message = "all_input_ids: row 1 has a repetition_penalty, which requires them"
        refuses(message, sample, LOGITS, SamplingData.from_numpy(), given)
    else:
        sample(LOGITS, SamplingData.from_numpy(), given)
    refuses(message, sample, LOGITS, SamplingData.from_numpy(is_prefill=False), given)
    sample(LOGITS, SamplingData.from_numpy(TEXT, TEXT, np.asarray, is_prefill=False), given)


RULE = {
    "False": ({"do_sample": [False, True]}, [False, True]),
    "none": ({"temperature": [0.5, 1.0]}, [True, True]),
    "none, a seed only": ({"seed": [1, 2]}, [True, True]),
    "none, penalties only": ({"repetition_penalty": [1.5, 2.0]}, [False, False]),
    "a temperature": ({"temperature": [0.5, 1.0], "do_sample": [False, False]}, [True, False]),
    "a top_k": ({"top_k": [1, 0], "do_sample": [False, False]}, [True, False]),
    "a top_p": ({"top_p": [0.9, 1.0], "do_sample": [False, False]}, [True, False]),
    "a seed": ({"seed": [1, 2], "do_sample": [False, True]}, [False, True]),
    "penalties": ({"presence_penalty": [1.5, 2.0], "do_sample": [False, True]}, [False, True]),
}


@pytest.mark.parametrize(("arrays", "sampled"), RULE.values(), ids=RULE)
def test_do_sample_becomes_true_with_sampling_parameters(arrays, sampled):
    given = {name: np.array(values) for name, values in arrays.items()}
    if "top_k" in given:
        given["top_k"] = np.ma.masked_equal(given["top_k"], 0)
    found = param(**given)
    assert found.do_sample.tolist() == sampled
    values = sample(LOGITS, SamplingData.from_numpy(TEXT, TEXT, np.asarray), found)[1]
    assert (values is None) == (not any(sampled))
    if any(sampled):  # logprobs of sampled rows, logits of greedy ones, which here are above zero
        assert [bool(value <= 0) for value in values] == sampled


BUILT = {
    "a temperature": {"temperature": np.full(2, 0.7)},
    "a seed": {"seed": np.array([3, 4])},
    "a temperature, and do_sample off": {"temperature": np.full(2, 0.7), "do_sample": np.zeros(2, bool)},
    "a masked top_k": {"top_k": np.ma.masked_array([3, 0], mask=[False, True])},
}


@pytest.mark.parametrize("arrays", BUILT.values(), ids=BUILT)
def test_a_param_that_is_built_directly_is_that_of_from_numpy(arrays):
    built, made = SamplingParam(**arrays, to_tensor=np.asarray), param(**arrays)
    assert built.do_sample.tolist() == made.do_sample.tolist()
    assert built.do_sample.any()
    seeded = {**arrays, "seed": np.array([3, 4])}
    found, wanted = (
        sample(LOGITS, None, make(**seeded, to_tensor=np.asarray))
        for make in (SamplingParam, SamplingParam.from_numpy)
    )
    assert [values.tolist() for values in found] == [values.tolist() for values in wanted]


def test_masked_entries_are_rows_without_the_parameter():
    masked = np.ma.masked_array([5.0, np.nan, -3.0], mask=[False, True, True])
    found = param(temperature=masked)
    assert found.temperature.tolist() == [5, 1, 1]
    assert found.do_sample.tolist() == [True, False, False]
    found = param(do_sample=np.ma.masked_array([False, True, True], mask=[False, True, False]))
    assert found.do_sample.tolist() == [False, False, True]


def test_an_empty_batch():
    tokens, values = sample(LOGITS[:0], SamplingData.from_numpy(TEXT[:0], TEXT[:0], np.asarray), SamplingParam())
    assert tokens.shape == (0,)
    assert values is None


def test_a_vocabulary_of_one():
    logits = np.array([[-7.0], [2.0]], np.float32)
    assert sample(logits)[0].tolist() == [0, 0]
    tokens, values = sample(logits, None, param(do_sample=np.array([True, False])))
    assert tokens.tolist() == [0, 0]
    assert values.tolist() == [0, 2]
    given = param(top_k=np.array([1, 1]))
    refuses("top_k: row 0: 1 is not > 0 and < 1, the vocabulary", sample, logits, None, given)

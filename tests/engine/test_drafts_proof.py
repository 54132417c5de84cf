"""The proof that drafts change nothing: 57,000 tokens of six vocabularies, three quantizations, chains with state.

Each text is drawn with drafts and without. Tokens, logprobs, the values that the chain drew from and the ends are
compared as they are, bit by bit.
"""

import pytest
from logitsmith.engine import (
    BatchAnswer,
    DraftOptions,
    GenerationRequest,
    LogprobRequest,
    Model,
    Token,
    generate,
    generate_many,
)
from logitsmith.logprobs.events import ExactnessLevel

from .pruned_model import write_pruned_model
from .quantized_models import quantize
from .small_models import write_model

pytestmark = pytest.mark.slow

VOCABULARIES = ["gpt2", "llama", "bert", "t5", "rwkv", "plamo2"]
QUANTIZATIONS = ["Q8_0", "Q4_0", "Q5_1"]
"""Those whose logits do not depend on the number of tokens in a call, up to seven."""
CONTEXT_TOKENS = 256
PROMPT = [5, 6, 7, 8]
CHAINS = [
    "greedy",
    "temp0.2",
    "temp1",
    "penalties(repeat=1.3, last_n=32) > temp0.2",
    "penalties(frequency=0.4, presence=0.2) > greedy",
    "dry(multiplier=0.8) > temp0.15",
    "mirostat(tau=2)",
    "mirostat-v2(tau=2)",
    "min-p0.05 > adaptive-p0.4",
    "temp0.2 > xtc(probability=0.5, threshold=0.05) > dist",
    "typical0.5 > temp0.3",
    "top-n-sigma1 > dynatemp(range=0.2) > temp0.3",
    "no_repeat_ngram3 > temp0.1",
]
LIMITS = [{}, {"n_max": 1}, {"n_max": 6}, {"n_max": 6, "p_min": 0.3, "n_min": 2}]


@pytest.fixture(scope="module", params=VOCABULARIES)
def source(request, tmp_path_factory):
    """A model in half precision, of random weights."""
    path = tmp_path_factory.mktemp(request.param) / "model.gguf"
    return write_model(path, "llama", request.param)


@pytest.fixture(scope="module", params=QUANTIZATIONS)
def paths(request, source):
    """The model in one quantization, and in another one, which drafts: its best token is often the same."""
    target, draft = source.with_name(f"{request.param}.gguf"), source.with_name(f"draft-of-{request.param}.gguf")
    quantize(source, target, request.param)
    quantize(source, draft, "Q4_1")
    return target, draft


def requests(draft):
    for number, chain in enumerate(CHAINS):
        limits = LIMITS[number % len(LIMITS)]
        yield GenerationRequest(
            [*PROMPT, 9 + number],
            chain,
            max_tokens=CONTEXT_TOKENS - 10,
            logprobs=LogprobRequest(2, "both"),
            lookup=4 if number % 3 == 2 and draft is not None else 0,
            id=chain,
            seed=number,
            exact_reuse=True,
            ends_at_eog=False,
            draft=None if draft is None else DraftOptions(draft, **limits),
        )


def test_tokens_and_logprobs_are_those_of_runs_without(paths):
    path, draft = paths
    token_count = accepted_count = rejected_count = 0
    with Model.load(path, n_ctx=CONTEXT_TOKENS, threads=1) as model:
        assert model.draft_exactness(6).level is ExactnessLevel.EXACT
        plain_runs = {}
        for plain_request, draft_request in zip(requests(None), requests(draft), strict=True):
            plain = list(generate(model, plain_request))
            drafted = list(generate(model, draft_request))
            tokens = [event for event in plain if isinstance(event, Token)]
            assert [event for event in drafted if isinstance(event, Token)] == tokens, plain_request.chain
            end, done = drafted[-1], plain[-1]
            assert (end.text, end.finish_reason) == (done.text, done.finish_reason)
            plain_runs[plain_request.id] = tuple(tokens)
            token_count += len(tokens)
            accepted_count += end.accepted_tokens
            rejected_count += end.drafted_tokens - end.accepted_tokens
        answers = list(generate_many(model, requests(draft), 4))
        assert all(isinstance(answer, BatchAnswer) for answer in answers)
        assert {answer.exactness.level for answer in answers} == {ExactnessLevel.EXACT}
        assert {answer.id: answer.tokens for answer in answers} == plain_runs
    assert token_count == len(CHAINS) * (CONTEXT_TOKENS - 10)  # 18 models make 57,564 tokens
    assert accepted_count > 100
    assert rejected_count > 100


STORY = "Once upon a time, a lighthouse keeper found a letter in a bottle."
CODE = "def fibonacci(n):\n    "


@pytest.mark.parametrize("prompt", [STORY, CODE], ids=["story", "code"])
def test_the_bundled_model_with_some_of_its_layers(bundled, tmp_path, prompt):
    """A model of real weights. A model that lacks three of the thirty layers drafts for it."""
    path = tmp_path / "draft.gguf"
    write_pruned_model(path, layers=[*range(25), 28, 29], tokens=None)
    assert bundled.draft_exactness(6).level is ExactnessLevel.EXACT
    for number, chain in enumerate(CHAINS):
        fields = {"max_tokens": 100, "logprobs": LogprobRequest(2, "both"), "seed": number, "exact_reuse": True}
        runs = [
            list(generate(bundled, GenerationRequest(prompt, chain, **fields, draft=draft)))
            for draft in (None, DraftOptions(path, **LIMITS[number % len(LIMITS)]))
        ]
        plain, drafted = ([event for event in run if isinstance(event, Token)] for run in runs)
        assert drafted == plain, chain
        assert runs[1][-1].accepted_tokens > 0

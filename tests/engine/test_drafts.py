"""Drafts of a smaller model: the same tokens as without, and what cannot draft."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from logitsmith.engine import (
    BatchAnswer,
    BatchFailure,
    DraftOptions,
    GenerationRequest,
    LogprobRequest,
    Model,
    ModelError,
    Start,
    Token,
    generate,
    generate_many,
)
from logitsmith.engine.drafts import FirstDraft, ModelDraft, PromptLookup, vocabulary_difference
from logitsmith.engine.guidance import Guidance
from logitsmith.engine.native.context import NativeContext
from logitsmith.grammars import resolve_grammar
from logitsmith.grammars.bans import parse_bans
from logitsmith.logprobs.events import EXACT, BatchExactness, Done, ExactnessLevel, Rewind
from logitsmith.samplers import build, parse_chain
from logitsmith.samplers.chain import Phase, StepSpec
from logitsmith.samplers.loop_guard import LoopGuard

from .pruned_model import TOKENS, write_pruned_model
from .quantized_models import quantize
from .small_models import make_vocabulary, write_model

LIST = "red apple, green apple, red apple, green apple, red apple, green"
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n"
PROSE = "The sea was calm, and nobody on the pier had expected"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A model of random weights, quantized so that its logits do not depend on the number of tokens in a call."""
    source = write_model(tmp_path_factory.mktemp("drafts") / "model.gguf", "llama")
    for name in ("Q8_0", "Q4_1"):
        quantize(source, source.with_name(f"{name}.gguf"), name)
    return source.with_name("Q8_0.gguf")


@pytest.fixture(scope="module")
def model(path):
    with Model.load(path, n_ctx=1024, threads=1) as loaded:
        assert loaded.draft_exactness(8).level is ExactnessLevel.EXACT
        yield loaded


SOURCES = {
    "another quantization": {"draft": "Q4_1.gguf"},
    "itself": {"draft": "Q8_0.gguf"},
    "the text": {"lookup": 8},
}


@pytest.fixture(params=SOURCES.values(), ids=SOURCES)
def source(request, path):
    """A model that is right now and then, one that is right with the top token, and what the text repeats."""
    if "lookup" in request.param:
        return request.param
    return {"draft": DraftOptions(path.with_name(request.param["draft"]))}


def run(model, prompt=PROSE, chain="temp0.8 > top-k40", **options):
    """Return what a request makes, without the counts and times."""
    fields = {"max_tokens": 40, "seed": 3, "logprobs": LogprobRequest(3, "both"), "exact_reuse": True, **options}
    events = list(generate(model, GenerationRequest.of(prompt, chain, **fields)))
    assert isinstance(events[-1], Done)
    return [event for event in events if isinstance(event, (Token, Rewind))], events[-1]


def ending(done):
    return done.text, done.finish_reason, done.complete, done.stop, done.forced_tokens, done.discarded_tokens


def check_equal(model, source, **options):
    model.context.truncate(0)
    plain, done = run(model, **options)
    assert done.drafted_tokens is None or "lookup" in options
    drafted, end = run(model, **{**options, **source})
    assert drafted == plain
    assert ending(end) == ending(done)
    assert end.context_shifts == done.context_shifts
    assert 0 <= end.accepted_tokens <= end.drafted_tokens
    return end


@pytest.mark.parametrize("prompt", [LIST, CODE, PROSE], ids=["list", "code", "prose"])
@pytest.mark.parametrize("n_max", [1, 3, 7])
def test_the_tokens_and_their_logprobs_stay_the_same(model, source, prompt, n_max):
    source = {"lookup": n_max} if "lookup" in source else {"draft": replace(source["draft"], n_max=n_max)}
    end = check_equal(model, source, prompt=prompt, chain="temp0.3 > top-k40")
    assert end.accepted_tokens > 0 or "lookup" in source


CHAINS = [
    "greedy",
    "temp1",
    "penalties(repeat=1.3) > temp1",
    "temp1.5 > mirostat",
    "temp1.5 > mirostat-v2",
    "min-p0.05 > adaptive-p0.4",
    "xtc(probability=0.5, threshold=0.05) > temp1",
    "dry > temp0.7",
    "top-n-sigma1 > dynatemp(range=0.5) > temp0.9",
]


@pytest.mark.parametrize("chain", CHAINS)
def test_state_of_samplers_stays_in_step(model, source, chain):
    assert check_equal(model, source, chain=chain, prompt=LIST).drafted_tokens > 0 or "lookup" in source


THINKING = Phase([StepSpec(sampler) for sampler in parse_chain("temp1")], until=" the", max_tokens=8, then="\n")
GRAMMAR = resolve_grammar({"gbnf": 'root ::= (" apple, " ("green" | "red" | [a-z]{2,5}))+ " apple."'})
OPTIONS = {
    "traces": {"trace": 4},
    "stop string": {"stop": "e "},
    "length": {"max_tokens": 6},
    "one token": {"max_tokens": 1},
    "no token": {"max_tokens": 0},
    "bans": {"bans": parse_bans([{"regex": "[aei]"}]), "ban_retries": 4},
    "bans that step back": {"bans": parse_bans(["th", " a"]), "ban_retries": 1},
    "loop guard": {"loop_guard": LoopGuard(repeats=2, min_tokens=4), "chain": "greedy", "prompt": LIST},
    "loop guard that goes back": {
        "loop_guard": LoopGuard(action="rewind", repeats=2, min_tokens=4),
        "chain": "temp0.3",
        "prompt": LIST,
    },
    "phases": {"phases": [THINKING], "chain": "temp0.3"},
    "healing": {"heal": True, "prompt": "The sea was cal"},
    "grammar": {"constraint": GRAMMAR, "prompt": LIST},
    "grammar without jump": {"constraint": GRAMMAR, "prompt": LIST, "jump": False},
    "grammar that is completed": {
        "constraint": GRAMMAR,
        "prompt": LIST,
        "max_tokens": 5,
        "complete_sentence": True,
    },
    "grammar and bans": {"constraint": GRAMMAR, "prompt": LIST, "bans": parse_bans(["red"])},
    "grammar and phases": {"constraint": GRAMMAR, "prompt": LIST, "phases": [THINKING]},
    "lookup": {"lookup": 8, "prompt": LIST, "chain": "temp0.3"},
    "ignored end": {"ends_at_eog": False, "chain": "temp2"},
    "guidance": {"guidance": Guidance(1.5, "A desert of dust and"), "prompt": LIST, "chain": "temp0.3"},
    "echo": {"echo": True},
    "beginning": {"beginning": " apple, red", "prompt": LIST + " apple, red", "constraint": GRAMMAR},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    "seed", [3, pytest.param(4, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
def test_everything_else_works_with_drafts(model, source, options, seed):
    check_equal(model, source, **{"seed": seed, **options})


@pytest.fixture(scope="module")
def full_context(path):
    """The model with a context that is quickly full."""
    with Model.load(path, n_ctx=256, threads=1) as loaded:
        yield loaded


@pytest.mark.parametrize("keep", [0, 5, -1])
def test_a_context_that_shifts(full_context, source, keep):
    """A draft model's context does not shift: it forgets half of the text."""
    options = {"chain": "ignore_eos > top-k3 > temp0.1", "keep_on_shift": keep, "max_tokens": 300}
    end = check_equal(full_context, source, **options)
    assert end.context_shifts > 0
    assert end.accepted_tokens > 0


def test_a_full_context_ends_the_text_at_the_same_token(full_context, source):
    prompt = full_context.vocabulary.tokenize_prompt(LIST.encode()) * 100
    end = check_equal(full_context, source, prompt=prompt[:232], chain="ignore_eos > top-k1", max_tokens=None)
    assert (end.completion_tokens, end.finish_reason) == (25, "context")


def test_drafts_depend_on_the_text_alone(tmp_path):
    """Otherwise a repeated run would have other batches, and where these change logits, another text."""
    path = write_model(tmp_path / "model.gguf", "llama", "llama")
    with Model.load(path, n_ctx=512, threads=1) as model:
        assert model.draft_exactness(3).level is ExactnessLevel.ROUNDING
        draft = DraftOptions(path)
        prompt = model.vocabulary.tokenize_prompt(LIST.encode())
        fields = {"chain": "ignore_eos > temp0.3", "max_tokens": 100, "draft": draft}
        first, done = run(model, prompt=prompt * 2, **fields)
        for other in (prompt, prompt * 2 + [token.id for token in first[:50]], prompt * 3, prompt[:5]):
            run(model, prompt=other, **fields)
            again, end = run(model, prompt=prompt * 2, **fields)
            assert again == first
            assert (end.drafted_tokens, end.accepted_tokens) == (done.drafted_tokens, done.accepted_tokens)
        assert done.accepted_tokens > 10


def test_drafting_is_interrupted_only_while_a_long_text_is_read(pruned, draft_path):
    def count_calls(prompt, limit, draft):
        calls = []

        def is_interrupted():
            calls.append(None)
            return limit is not None and len(calls) > limit

        request = GenerationRequest.of(prompt, "temp0.5", max_tokens=20, seed=3, draft=draft, exact_reuse=True)
        done = list(generate(pruned, request, is_interrupted=is_interrupted))[-1]
        return len(calls), done.finish_reason

    draft = DraftOptions(draft_path)
    for prompt in (PROSE, LIST * 30):  # the second time, the prompt is not read again
        plain_count, _ = [count_calls(prompt, None, None) for _ in range(2)][1]
        drafted_count, reason = count_calls(prompt, None, draft)
        assert reason == "length"
        assert plain_count <= 21
        assert (drafted_count > plain_count) == (prompt != PROSE)
    draft.open_for(pruned).second_context.truncate(0)
    assert count_calls(LIST * 30, 10, draft)[1] == "interrupted"


@pytest.mark.parametrize("difference", [-128, 128])
def test_a_vocabulary_of_another_size(tmp_path, pruned, difference):
    """Tokens that only one of the models has are not drafted, and others are read in their place."""
    path = tmp_path / "draft.gguf"
    write_pruned_model(path, [0], TOKENS + difference)
    often_the_last_token = [{"logit_bias": {"bias": {TOKENS - 1: 100, 7: 100.5}}}, {"temperature": 2.0}, "dist"]
    check_equal(pruned, {"draft": DraftOptions(path)}, chain=often_the_last_token)
    check_equal(pruned, {"draft": DraftOptions(path)}, chain="temp0.5")


def test_without_a_draft_the_model_is_not_loaded(pruned):
    _, end = run(pruned, draft=DraftOptions("nonsuch.gguf", n_max=0, n_min=3))
    assert end.drafted_tokens is None


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"draft": 500}, {"draft": 3, "lookup": 300}], ids=str)
def test_a_draft_longer_than_the_probes_context(pruned, draft_path, options):
    fields = {**options, "draft": DraftOptions(draft_path, options["draft"])}
    assert run(pruned, **fields)[0] == run(pruned)[0]
    assert pruned.draft_exactness(500) == BatchExactness(ExactnessLevel.EXACT, max_exact_tokens=256)


def test_a_draft_model_with_a_short_context_drafts_what_fits():
    draft_model = FakeDraftModel(context_length=8)
    drafts = model_draft(draft_model, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1], n_max=30)
    assert drafts.draft(99) == [2, 3, 4, 5]


def test_a_promise_for_shorter_drafts_needs_no_other_probe(quantized_models, monkeypatch):
    """Otherwise each new ``speculative.n_max`` of a request would stop all requests of a server."""
    made = []
    with Model.load(quantized_models.path("Q4_K_M"), n_ctx=256) as model:
        expected = {count: model.draft_exactness(count).level for count in (1, 2, 3, 6, 20)}
    with Model.load(quantized_models.path("Q4_K_M"), n_ctx=256) as model:
        model.draft_exactness(40)
        make = NativeContext.__init__
        monkeypatch.setattr(NativeContext, "__init__", lambda *a, **k: (made.append(1), make(*a, **k))[1])
        assert {count: model.draft_exactness(count).level for count in expected} == expected
        assert not made
        model.draft_exactness(41)
        assert made


def test_the_first_event_says_who_drafts_and_how_exactly(pruned, draft_path):
    draft = DraftOptions(draft_path, 4, 1, 0.25)
    start = next(generate(pruned, PROSE, build("greedy"), max_tokens=1, draft=draft))
    assert isinstance(start, Start)
    assert start.draft == {"model": "draft", "n_max": 4, "n_min": 1, "p_min": 0.25}
    assert start.draft_exactness == BatchExactness(ExactnessLevel.EXACT, max_exact_tokens=256)
    assert start.draft_exactness.promise == "exact up to 256 tokens"
    plain = next(generate(pruned, PROSE, build("greedy"), max_tokens=1))
    assert (plain.draft, plain.draft_exactness) == (None, None)


PROMISES = {
    "Q8_0": (3, "exact"),
    "Q4_K_M": (2, "exact"),  # with more tokens it depends on the processor
    "F16": (1, "to rounding"),
}


@pytest.mark.parametrize("name", PROMISES)
def test_what_is_promised_depends_on_the_quantization(quantized_models, name):
    """As docs/reproducibility.md says of the tokens in one call."""
    draft_tokens, level = PROMISES[name]
    with Model.load(quantized_models.path(name), n_ctx=256) as model:
        promise = model.draft_exactness(draft_tokens)
        assert promise.level.value == level
        assert promise.max_exact_tokens is None
        assert (promise.max_logit_difference > 0) == (level == "to rounding")


def test_a_mixture_of_experts_promises_nothing(quantized_models):
    with Model.load(quantized_models.path("Q8_0", experts=4), n_ctx=256) as model:
        assert model.draft_exactness(3).level is ExactnessLevel.ROUNDING


COMBINED = [
    (EXACT, EXACT, EXACT),
    (EXACT, BatchExactness(ExactnessLevel.EXACT, 0, 256), BatchExactness(ExactnessLevel.EXACT, 0, 256)),
    (
        BatchExactness(ExactnessLevel.EXACT, 0, 512),
        BatchExactness(ExactnessLevel.EXACT, 0, 256),
        BatchExactness(ExactnessLevel.EXACT, 0, 256),
    ),
    (
        BatchExactness(ExactnessLevel.AMONG_THEMSELVES, 0.5),
        BatchExactness(ExactnessLevel.EXACT, 0, 256),
        BatchExactness(ExactnessLevel.AMONG_THEMSELVES, 0.5),
    ),
    (
        BatchExactness(ExactnessLevel.AMONG_THEMSELVES, 0.5),
        BatchExactness(ExactnessLevel.ROUNDING, 0.25),
        BatchExactness(ExactnessLevel.ROUNDING, 0.5),
    ),
]


@pytest.mark.parametrize(("first", "second", "expected"), COMBINED)
def test_the_weaker_of_two_promises(first, second, expected):
    assert first.combined_with(second) == second.combined_with(first) == expected


# --- what a draft model drafts


@dataclass(frozen=True)
class FakeVocabulary:
    size: int = 8
    kind: str = "BPE"
    bos: int | None = 1
    eos: int | None = 2
    adds_bos: bool = True
    adds_eos: bool = False
    changes: dict[int, bytes] = field(default_factory=dict)

    @property
    def texts(self):
        return [self.changes.get(token, b"t%d" % token) for token in range(self.size)]


@dataclass
class FakeDraftModel:
    """A draft model whose next token is one more than the last, with the given probability."""

    vocabulary: FakeVocabulary = FakeVocabulary()
    context_length: int = 16
    probabilities: dict[int, float] = field(default_factory=dict)
    read_texts: list[list[int]] = field(default_factory=list)

    def read(self, tokens):
        self.read_texts.append(list(tokens))
        size = self.vocabulary.size
        token = (tokens[-1] + 1) % size
        probability = self.probabilities.get(token, 0.9)
        row = np.full(size, np.log((1 - probability) / (size - 1)), dtype=np.float32)
        row[token] = np.log(probability)
        return row


def model_draft(draft_model, text=(), vocabulary=FakeVocabulary(), **limits):
    drafts = ModelDraft(DraftOptions("draft.gguf", **limits), draft_model, vocabulary, draft_model.read)
    for token in text:
        drafts.add(token)
    return drafts


LIMITS = {
    "three by default": ({}, {}, 99, [4, 5, 6]),
    "n_max": ({"n_max": 2}, {}, 99, [4, 5]),
    "no more than fit": ({"n_max": 5}, {}, 1, [4]),
    "nothing fits": ({}, {}, 0, []),
    "n_max 0": ({"n_max": 0}, {}, 99, []),
    "p_min": ({"p_min": 0.5}, {5: 0.4}, 99, [4]),
    "p_min that the first token misses": ({"p_min": 0.5}, {4: 0.4}, 99, []),
    "p_min at the probability": ({"p_min": 0.25}, {5: 0.2501}, 99, [4, 5, 6]),
    "n_min": ({"n_min": 2, "p_min": 0.5}, {5: 0.4}, 99, []),
    "n_min that is reached": ({"n_min": 1, "p_min": 0.5}, {5: 0.4}, 99, [4]),
    "n_min that does not fit": ({"n_min": 2}, {}, 1, []),
}


@pytest.mark.parametrize(("limits", "probabilities", "max_count", "expected"), LIMITS.values(), ids=LIMITS)
def test_limits_of_a_draft(limits, probabilities, max_count, expected):
    drafts = model_draft(FakeDraftModel(probabilities=probabilities), [3], **limits)
    assert drafts.draft(max_count) == expected
    assert drafts.draft(max_count) == expected  # nothing of a draft is left in the text


def test_the_text_is_followed():
    draft_model = FakeDraftModel()
    drafts = model_draft(draft_model, [3, 1], n_max=2)
    assert drafts.draft(9) == [2, 3]
    drafts.add(6)
    assert drafts.draft(9) == [7, 0]
    drafts.remove_last(2)
    assert drafts.draft(9) == [4, 5]
    assert draft_model.read_texts == [[3, 1], [3, 1, 2], [3, 1, 6], [3, 1, 6, 7], [3], [3, 4]]


def test_an_empty_text_and_an_interruption_have_no_draft():
    draft_model = FakeDraftModel()
    drafts = model_draft(draft_model)
    assert drafts.draft(9) == []
    drafts.remove_last(3)
    drafts.add(3)
    interrupted = ModelDraft(DraftOptions("x"), draft_model, FakeVocabulary(), lambda _tokens: None)
    interrupted.add(3)
    assert interrupted.draft(9) == []
    assert drafts.draft(9) == [4, 5, 6]


def test_a_text_longer_than_the_draft_models_context_is_forgotten_from_its_beginning():
    draft_model = FakeDraftModel(context_length=8)
    drafts = model_draft(draft_model, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1], n_max=2)
    assert drafts.draft(9) == [2, 3]
    assert draft_model.read_texts == [[5, 6, 7, 0, 1], [5, 6, 7, 0, 1, 2]]
    drafts.remove_last(7)  # more than it remembers
    assert drafts.draft(9) == []


def test_tokens_that_one_model_lacks():
    few = FakeDraftModel(FakeVocabulary(size=6))
    drafts = model_draft(few, [7], n_max=2)  # the text has a token that the draft model does not know
    assert drafts.draft(9) == [0, 1]
    assert few.read_texts[0] == [5]
    many = FakeDraftModel(FakeVocabulary(size=10))
    assert max(model_draft(many, [7], n_max=1).draft(9)) < 8  # the model does not know token 8


def test_the_first_source_takes_precedence():
    lookup = PromptLookup(8, ())
    drafts = FirstDraft([lookup, model_draft(FakeDraftModel(context_length=64), n_max=2)])
    for token in [1, 2, 3, 4, 5, 6, 1, 2, 3, 4]:
        drafts.add(token)
    assert drafts.draft(9) == [5, 6, 1, 2]
    drafts.record_acceptance(4, 4)
    drafts.add(0)
    assert drafts.draft(9) == [1, 2]
    drafts.record_acceptance(2, 1)
    assert (drafts.drafted_token_count, drafts.accepted_token_count) == (6, 5)
    assert (lookup.drafted_token_count, lookup.accepted_token_count) == (4, 4)
    drafts.remove_last(1)
    assert drafts.draft(9)[:2] == [5, 6]


# --- what is rejected


DIFFERENT = {
    "type": (FakeVocabulary(kind="SPM"), "its vocabulary is of the type SPM, not BPE"),
    "first token": (FakeVocabulary(bos=3), "its beginning-of-sequence token is 3, not 1"),
    "no first token": (FakeVocabulary(bos=None), "its beginning-of-sequence token is missing, not 1"),
    "adds none": (
        FakeVocabulary(adds_bos=False),
        "it does not add the beginning-of-sequence token to a text, and the model adds it",
    ),
    "adds one": (
        FakeVocabulary(adds_eos=True),
        "it adds the end-of-sequence token to a text, and the model does not add it",
    ),
    "size": (
        FakeVocabulary(size=137),
        "it has 137 tokens, not 8; at most 128 more or fewer are allowed",
    ),
    "token": (FakeVocabulary(changes={6: b"x", 7: b"y"}), "token 6 is 'x', not 't6'"),
    "bytes": (FakeVocabulary(changes={5: b"\xff"}), "token 5 is '\ufffd', not 't5'"),
}


@pytest.mark.parametrize(("vocabulary", "sentence"), DIFFERENT.values(), ids=DIFFERENT)
def test_vocabularies_that_cannot_draft(vocabulary, sentence):
    assert vocabulary_difference(FakeVocabulary(), vocabulary) == sentence


@pytest.mark.parametrize(
    "vocabulary",
    [
        FakeVocabulary(),
        FakeVocabulary(size=136),
        FakeVocabulary(size=4),
        FakeVocabulary(changes={4: b"x"}),
        FakeVocabulary(eos=4),
        FakeVocabulary(eos=None),
    ],
    ids=["equal", "128 more", "fewer", "another token 4", "another end that is not added", "no end"],
)
def test_vocabularies_that_can_draft(vocabulary):
    assert vocabulary_difference(FakeVocabulary(), vocabulary) == ""


def test_the_ids_of_tokens_that_no_text_gets_may_differ():
    adds_eos = FakeVocabulary(adds_bos=False, adds_eos=True)
    assert vocabulary_difference(adds_eos, replace(adds_eos, bos=5)) == ""
    assert vocabulary_difference(adds_eos, replace(adds_eos, eos=4)) == "its end-of-sequence token is 4, not 2"


def changed_tokens(token, text):
    tokens = list(make_vocabulary("llama")["tokenizer.ggml.tokens"])
    tokens[token] = text
    return {"tokenizer.ggml.tokens": tokens}


FILES = {
    "equal": ("llama", "llama", {}, None),
    "another token 0": ("llama", "llama", changed_tokens(0, "<nil>"), None),
    "another bos": (
        "llama",
        "llama",
        {"tokenizer.ggml.bos_token_id": 5},
        "beginning-of-sequence token is 5, not 1",
    ),
    "recurrent": ("mamba", "llama", {}, "is recurrent, and cannot discard wrong guesses"),
}


@pytest.mark.parametrize(("architecture", "tokenizer", "changes", "sentence"), FILES.values(), ids=FILES)
def test_files_that_can_draft_and_files_that_cannot(tmp_path, architecture, tokenizer, changes, sentence):
    target = write_model(tmp_path / "target.gguf", "llama", "llama")
    path = write_model(tmp_path / "draft.gguf", architecture, tokenizer, changes)
    with Model.load(target, n_ctx=256, threads=1) as model:
        if sentence is None:
            _, end = run(model, prompt="hello", max_tokens=12, draft=DraftOptions(path))
            assert end.drafted_tokens > 0
            return
        with pytest.raises(ModelError, match="draft: ") as error:
            run(model, draft=DraftOptions(path))
        assert sentence in str(error.value)
        assert "draft.gguf" in str(error.value)


@pytest.mark.parametrize("architecture", ["mamba", "jamba"])
def test_a_recurrent_model_has_no_drafts(tmp_path, architecture):
    path = write_model(tmp_path / "model.gguf", architecture)
    with (
        Model.load(path, n_ctx=256, threads=1) as model,
        pytest.raises(ModelError, match="draft: not supported by recurrent models, which cannot discard wrong"),
    ):
        run(model, draft=DraftOptions(path))


# --- in a batch


BATCH = [(LIST, "temp0.5"), (CODE, "greedy"), (PROSE, "temp1"), (PROSE, "dry > temp0.7")]


def batch_requests(source):
    """The request 2 has no drafts."""
    for key, (prompt, chain) in enumerate(BATCH):
        yield GenerationRequest.of(
            prompt,
            chain,
            max_tokens=24,
            logprobs=LogprobRequest(2, "both"),
            id=key,
            seed=key,
            **({} if key == 2 else source),
        )


@pytest.mark.parametrize("deterministic", [False, True], ids=["batch", "deterministic"])
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_batch_makes_the_same_tokens(model, source, parallel, deterministic):
    answers = {}
    for name, options in (("plain", {}), ("drafted", source)):
        outcomes = list(generate_many(model, batch_requests(options), parallel, deterministic=deterministic))
        assert all(isinstance(outcome, BatchAnswer) for outcome in outcomes), outcomes
        answers[name] = {outcome.id: outcome for outcome in outcomes}
    for key, plain in answers["plain"].items():
        drafted = answers["drafted"][key]
        assert drafted.tokens == plain.tokens
        assert ending(drafted.done) == ending(plain.done)
        assert drafted.exactness.level is ExactnessLevel.EXACT
    assert sum(answer.done.accepted_tokens or 0 for answer in answers["drafted"].values()) > 3
    assert answers["drafted"][2].done.drafted_tokens is None


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_everything_else_works_in_a_batch(model, path, options):
    fields = {"prompt": PROSE, "chain": "temp0.8", "max_tokens": 20, "logprobs": LogprobRequest(1), **options}
    answers = []
    for draft in (None, DraftOptions(path.with_name("Q4_1.gguf"))):
        requests = [GenerationRequest.of(**fields, seed=key, id=key, draft=draft) for key in range(3)]
        outcomes = sorted(generate_many(model, requests, 3), key=lambda outcome: outcome.id)
        assert all(isinstance(outcome, BatchAnswer) for outcome in outcomes), outcomes
        answers.append([(outcome.tokens, outcome.rewinds, ending(outcome.done)) for outcome in outcomes])
    assert answers[0] == answers[1]


def test_a_promise_counts_the_draft(quantized_models):
    """With this quantization two tokens in one call of a request round differently from one."""
    path = quantized_models.path("F16")
    with Model.load(path, n_ctx=256) as model:
        requests = [
            GenerationRequest.of(
                [5, 6, 7 + n_max], "greedy", max_tokens=4, id=n_max, draft=DraftOptions(path, n_max)
            )
            for n_max in (0, 1)
        ]
        levels = {answer.id: answer.exactness.level.value for answer in generate_many(model, requests, 2)}
        assert levels == {0: "exact among themselves", 1: "to rounding"}


def test_a_draft_model_that_does_not_fit_fails_its_request_alone(pruned, tmp_path, draft_path):
    path = write_model(tmp_path / "draft.gguf", "llama", "gpt2")
    requests = [
        GenerationRequest.of(PROSE, "greedy", max_tokens=4, id="plain"),
        GenerationRequest.of(PROSE, "greedy", max_tokens=4, id="wrong", draft=DraftOptions(path)),
        GenerationRequest.of(PROSE, "greedy", max_tokens=4, id="right", draft=DraftOptions(draft_path)),
    ]
    outcomes = {outcome.id: outcome for outcome in generate_many(pruned, requests, 2)}
    assert isinstance(outcomes["wrong"], BatchFailure)
    assert "cannot draft for" in str(outcomes["wrong"].error)
    assert outcomes["plain"].tokens == outcomes["right"].tokens


def test_prompts_with_a_common_beginning_are_read_once(pruned, draft_path, monkeypatch):
    from logitsmith.engine.slots import SequenceSlots

    copied = []
    copy = SequenceSlots._copy_beginning

    def counted(slots, slot, count_tokens):
        before = len(slot.tokens)
        copy(slots, slot, count_tokens)
        copied.append(len(slot.tokens) - before)

    monkeypatch.setattr(SequenceSlots, "_copy_beginning", counted)
    prompt = pruned.vocabulary.tokenize_prompt((LIST * 20).encode())
    draft = DraftOptions(draft_path)
    requests = [
        GenerationRequest.of(prompt, "temp1", max_tokens=4, id=key, seed=key, draft=draft) for key in range(3)
    ]
    answers = list(generate_many(pruned, requests, 3))
    assert len(answers) == 3
    assert sum(count > 200 for count in copied) >= 3  # by the draft pruned's slots, too

"""Beam search with models: sequences, chains, grammars and texts, against a context that reads each text alone."""

from dataclasses import replace

import numpy as np
import pytest
from logitsmith.engine import GenerationRequest, LogprobRequest, Model, generate
from logitsmith.engine.batch import BatchEngine, BatchFailure, generate_many
from logitsmith.engine.beam_search import NextLogprobs, search_beams
from logitsmith.engine.beams import generate_beams
from logitsmith.engine.guidance import Guidance
from logitsmith.engine.request import BeamSearch, ChatMessages
from logitsmith.grammars import compile_grammar
from logitsmith.grammars.spec import GrammarSpec
from logitsmith.logprobs.events import Done, ExactnessLevel, PromptToken, Start, Token
from logitsmith.models.errors import AbortedError, ModelError
from logitsmith.samplers import build

from .small_models import write_model

PROMPT = "The sea was"


def texts_of(model, prompt=PROMPT, chain="dist", *, beams=3, n=8, settings=None, **fields):
    request = GenerationRequest.of(prompt, chain, max_tokens=n, beams=settings or BeamSearch(beams), **fields)
    return generate_beams(model, request)


def ids_of(events):
    return tuple(event.id for event in events if isinstance(event, Token))


def alone(model, prompt, chain, settings, n, constraint=None, negative=None, scale=1.0):
    """Return the texts of the search if each text is read by itself, into an empty context, with a new chain.

    ``negative``: the model and the tokens of the negative prompt under guidance.
    """
    vocabulary, stop = model.vocabulary, model.vocabulary.eog
    ids = vocabulary.tokenize_prompt(prompt.encode())

    def row_after(reader, prompt_ids, tokens):
        context = reader.context
        context.truncate(0)
        context.read(prompt_ids)
        for token in tokens:
            context.append(token)
        return context.logits().copy()

    def next_logprobs(texts):
        rows = []
        for tokens in texts:
            row = row_after(model, ids, tokens)
            if negative is not None:
                other = row_after(*negative, tokens)
                row = other + np.float32(scale) * (row - other)
            built = build(chain, vocab=vocabulary)
            built.reset(ids)
            state = None if constraint is None else constraint()
            for token in tokens:
                built.accept(token)
                if state is not None:
                    state.accept(token)
            candidates = built.apply(row, None if state is None else state.mask())
            weights = np.exp(candidates.logits.astype(np.float64))
            rows.append(NextLogprobs(candidates.ids, np.log(weights / weights.sum())))
        return rows

    def find_end(tokens):
        return "stop" if tokens[-1] in stop else None

    return search_beams(next_logprobs, settings, n, find_end)


CHAINS = {
    "model": "dist",
    "cuts": "top-k8 > temp0.7 > top-p0.9",
    "penalties": [{"penalties": {"repeat": 1.3, "frequency": 0.4, "last_n": 6}}, {"temperature": 0.9}],
    "dry": [{"dry": {"multiplier": 2.0, "allowed_length": 1, "breakers": []}}, "dist"],
    "min_tokens": [{"min_tokens": 4}, {"top_k": 12}],
    "lengths": "k_shift(k=2, steps=2) > length_decay(factor=1.5, start=3) > top_k12",
    "sequences": 'sequence_bias("the sea"=4, " the"=-2, ", and"=3) > top_k12',
    "scripts": 'scripts=["Latin"] > temp3 > top_k30',
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_the_texts_are_those_of_single_contexts(pruned, chain):
    settings = BeamSearch(4, 0.8)
    runs = texts_of(pruned, PROMPT, chain, settings=settings, n=9)
    expected = alone(pruned, PROMPT, chain, settings, 9)
    assert [ids_of(run) for run in runs] == [text.tokens for text in expected]
    assert [run[-1].score for run in runs] == pytest.approx([text.score for text in expected], abs=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba", "rwkv7", "jamba", "lfm2", "plamo2"])
def test_models_of_every_memory(tmp_path, architecture):
    """With attention, a window, a recurrent state, and with both: a text that is copied has its parent's state."""
    tokenizer = {"rwkv7": "rwkv", "plamo2": "plamo2"}.get(architecture, "gpt2")
    path = write_model(tmp_path / "model.gguf", architecture, tokenizer)
    with Model.load(path, n_ctx=256, batch=64, threads=1) as model:
        settings = BeamSearch(4, early_stopping="never")
        runs = texts_of(model, settings=settings, n=24)
        expected = alone(model, PROMPT, "dist", settings, 24)
        assert [ids_of(run) for run in runs] == [text.tokens for text in expected]
        assert [run[-1].score for run in runs] == pytest.approx([text.score for text in expected], abs=1e-3)


def test_a_text_is_a_run_with_a_score(pruned):
    runs = texts_of(pruned, n=6, settings=BeamSearch(3, 0.5, "never"), logprobs=LogprobRequest(2, "both"))
    assert len(runs) == 3
    scores = [run[-1].score for run in runs]
    assert scores == sorted(scores, reverse=True)
    for start, *tokens, done in runs:
        assert isinstance(start, Start)
        assert isinstance(done, Done)
        assert start.text_rules == {"beams": 3, "length_penalty": 0.5, "early_stopping": "never", "n_best": 3}
        assert [token.index for token in tokens] == list(range(done.completion_tokens))
        assert "".join(token.text for token in tokens) + done.rest == done.text
        model_logprobs, chain_logprobs = zip(*(token.distributions for token in tokens), strict=True)
        total = sum(each.logprob for each in chain_logprobs)
        assert done.score == pytest.approx(total / len(tokens) ** 0.5, abs=1e-5)
        assert [each.source for each in model_logprobs] == ["model"] * len(tokens)
        assert all(len(each.top) == 2 for each in chain_logprobs)


def test_the_logprobs_are_those_of_the_text(pruned):
    (start, *tokens, _), *_ = texts_of(pruned, n=6, logprobs=LogprobRequest(0))
    whole = GenerationRequest.of(
        [*start.prompt_ids, *(token.id for token in tokens)],
        "dist",
        max_tokens=0,
        echo=True,
        logprobs=LogprobRequest(0),
    )
    echoed = [event for event in generate(pruned, whole) if isinstance(event, PromptToken)]
    expected = [event.distributions[0].logprob for event in echoed[len(start.prompt_ids) :]]
    assert [token.distributions[0].logprob for token in tokens] == pytest.approx(expected, abs=1e-3)


def test_one_beam_is_a_greedy_run(model):
    model.context.truncate(0)  # a beginning that another test read in longer pieces would move the logits a little
    (run,) = texts_of(model, beams=1, n=16)
    model.context.truncate(0)
    greedy = list(generate(model, GenerationRequest.of(PROMPT, "greedy", max_tokens=16)))
    assert ids_of(run) == ids_of(greedy)
    assert run[-1].text == greedy[-1].text
    assert run[-1].finish_reason == greedy[-1].finish_reason


def test_only_the_best_texts_are_returned(pruned):
    every, one = texts_of(pruned, beams=4), texts_of(pruned, settings=BeamSearch(4, best_count=1))
    assert [ids_of(run) for run in one] == [ids_of(every[0])]


def test_the_same_request_has_the_same_texts(pruned):
    first, second = (texts_of(pruned, beams=5, n=12) for _ in range(2))
    assert [ids_of(run) for run in first] == [ids_of(run) for run in second]
    assert [run[-1].score for run in first] == [run[-1].score for run in second]


def test_the_exactness_is_that_of_the_slots(pruned):
    start = texts_of(pruned)[0][0]
    assert start.batch_exactness == pruned.batch_exactness(3)
    assert texts_of(pruned, beams=1)[0][0].batch_exactness.level is ExactnessLevel.EXACT


REGEX = GrammarSpec("test", "regex", " (red|green|blue)( sky)?\\.")


def test_under_a_grammar_every_text_is_a_sentence_and_the_best_one_is_found(pruned):
    runs = texts_of(pruned, constraint=REGEX, beams=64, n=30)
    grammar = compile_grammar(REGEX.source, pruned.vocabulary, kind="regex")
    assert all(grammar.matches(run[-1].text) for run in runs)
    assert {run[-1].text for run in runs} == {
        f" {color}{sky}." for color in ("red", "green", "blue") for sky in ("", " sky")
    }
    assert {(run[-1].finish_reason, run[-1].complete) for run in runs} == {("grammar", True)}
    # As many beams as there are spellings: the best of them, by their probabilities under the mask.
    fewer = texts_of(pruned, constraint=REGEX, beams=8, n=30)
    assert ids_of(fewer[0]) == ids_of(runs[0])


def test_a_grammar_s_texts_are_those_of_single_contexts(pruned):
    spec = GrammarSpec("test", "gbnf", 'root ::= [a-z ]{3,9} "." [0-9]{2,6} "!"')
    grammar = spec.compile(pruned.vocabulary)
    settings = BeamSearch(5, 0.0)
    runs = texts_of(pruned, chain="top-k20", constraint=spec, settings=settings, n=6)
    expected = alone(pruned, PROMPT, "top-k20", settings, 6, grammar.start)
    assert [ids_of(run) for run in runs] == [text.tokens for text in expected]


def test_a_sentence_is_completed_beyond_the_length(pruned):
    spec = GrammarSpec("test", "gbnf", 'root ::= [a-z ]{3,90} "(" [0-9]{2,6} ")"')
    grammar = spec.compile(pruned.vocabulary)
    for logprobs in (LogprobRequest(), LogprobRequest(0, "both")):
        cut = texts_of(pruned, constraint=spec, n=4, logprobs=logprobs)
        runs = texts_of(pruned, constraint=spec, n=4, complete_sentence=True, logprobs=logprobs)
        for short, run in zip(cut, runs, strict=True):
            assert not short[-1].complete
            assert ids_of(run)[:4] == ids_of(short)
            assert run[-1].complete
            assert grammar.matches(run[-1].text)
            assert run[-1].score == short[-1].score
            assert {len(event.distributions) for event in run[1:-1]} == {2 if logprobs.top_count == 0 else 0}


def test_a_grammar_after_a_trigger(pruned):
    spec = GrammarSpec("test", "regex", "[0-9]{3}", after=" ")
    for run in texts_of(pruned, constraint=spec, beams=4, n=12):
        before, _, after = run[-1].text.partition(" ")
        assert " " not in before
        assert after[:3].isdigit() or not run[-1].complete


@pytest.fixture(scope="module")
def second(pruned_model):
    """The same model in another context."""
    with Model.load(pruned_model, n_ctx=1024) as loaded:
        yield loaded


GUIDANCES = {
    "negative prompt": Guidance(1.5, "A desert of dust and"),
    "long negative prompt": Guidance(2.0, "It was a cold and dark night in the middle of a long winter, and"),
    "last token": Guidance(3.0),
    "mixture": Guidance(0.4, "Once upon a time"),
}


@pytest.mark.parametrize("chain", ["dist", CHAINS["penalties"]], ids=["model", "penalties"])
@pytest.mark.parametrize("guidance", GUIDANCES.values(), ids=GUIDANCES)
def test_under_guidance_each_text_is_read_twice(pruned, second, guidance, chain):
    settings = BeamSearch(4, 0.7)
    runs = texts_of(pruned, chain=chain, settings=settings, guidance=guidance, logprobs=LogprobRequest(1, "both"))
    ids = pruned.vocabulary.tokenize_prompt
    negative_ids = ids(PROMPT.encode())[-1:]
    if guidance.negative_prompt is not None:
        negative_ids = ids(guidance.negative_prompt.encode())
    negative = (second, negative_ids)
    expected = alone(pruned, PROMPT, chain, settings, 8, negative=negative, scale=guidance.scale)
    assert [ids_of(run) for run in runs] == [text.tokens for text in expected]
    assert [run[-1].score for run in runs] == pytest.approx([text.score for text in expected], abs=1e-4)
    for start, *tokens, done in runs:
        assert start.text_rules["guidance"] == guidance.as_setting()
        model_logprobs, chain_logprobs = zip(*(token.distributions for token in tokens), strict=True)
        assert sum(each.logprob for each in chain_logprobs) / len(tokens) ** 0.7 == pytest.approx(
            done.score, abs=1e-4
        )
        assert all(each.top[0].logprob >= each.logprob for each in model_logprobs)


def test_guidance_by_another_model_under_a_grammar_that_is_completed(pruned, pruned_model, tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(pruned_model.read_bytes())
    spec = GrammarSpec("test", "gbnf", 'root ::= [a-z ]{3,90} "(" [0-9]{2,6} ")"')
    fields = {"constraint": spec, "n": 5, "complete_sentence": True, "logprobs": LogprobRequest(0, "both")}
    plain = texts_of(pruned, **fields)
    guided = texts_of(pruned, guidance=Guidance(2.5, model=str(other)), **fields)
    # The other model is the same one, and reads the same prompt: the logits are those without guidance.
    assert [ids_of(run) for run in guided] == [ids_of(run) for run in plain]
    for run, other_run in zip(plain, guided, strict=True):
        for token, other_token in zip(run[1:-1], other_run[1:-1], strict=True):
            assert [each.logprob for each in other_token.distributions] == pytest.approx(
                [each.logprob for each in token.distributions], abs=1e-3
            )
    moved = texts_of(pruned, guidance=Guidance(1.5, "A list of facts"), **fields)
    assert all(run[-1].complete for run in moved)


def test_a_long_negative_prompt_leaves_less_room(small_context):
    negative = Guidance(1.5, [600] * 250)
    runs = texts_of(small_context, n=None, guidance=negative)
    assert {(run[-1].completion_tokens, run[-1].finish_reason) for run in runs} == {(7, "context")}
    with pytest.raises(ModelError, match="guidance, negative prompt: the prompt has 257 tokens"):
        texts_of(small_context, guidance=Guidance(1.5, [600] * 257))


class OnlyEven:
    """A constraint of a user, which knows only its mask."""

    def __init__(self, size):
        self.size = size

    def mask(self):
        return np.arange(self.size) % 2 == 0

    def accept(self, token):
        pass


class Copyable(OnlyEven):
    def copy(self):
        return self


def test_a_constraint_of_a_user(pruned):
    size = pruned.vocabulary.size
    runs = texts_of(pruned, constraint=Copyable(size))
    assert all(token % 2 == 0 for run in runs for token in ids_of(run))
    assert {run[-1].complete for run in runs} == {None}
    with pytest.raises(ModelError, match="OnlyEven is a constraint that cannot be copied; give it a method copy"):
        texts_of(pruned, constraint=OnlyEven(size))


def test_stop_strings_and_tokens_end_texts(pruned):
    free = texts_of(pruned, beams=4, n=12)
    letter = free[0][-1].text.strip()[3]
    runs = texts_of(pruned, beams=4, n=12, stop=[letter, "nothing"])
    assert runs
    for run in runs:
        assert letter not in run[-1].text
        assert run[-1].stop in (letter, None)
        assert run[-1].finish_reason == ("length" if run[-1].stop is None else "stop")
    last = ids_of(free[0])[2]
    ended = texts_of(pruned, beams=4, n=12, stop_token_ids=[last])
    assert all(last not in ids_of(run)[:-1] for run in ended)
    assert any(ids_of(run)[-1] == last and run[-1].finish_reason == "stop" for run in ended)


def test_the_end_of_generation_ends_a_text(small_model):
    """In a small vocabulary an end is among the best tokens soon, and counts in the length of the text."""
    with Model.load(small_model, n_ctx=64) as model:
        (eog,) = model.vocabulary.eog
        bias = [{"logit_bias": {"bias": {eog: 6.0}}}, "dist"]
        runs = texts_of(model, "hello", bias, beams=4, n=20)
        ended = [run for run in runs if run[-1].finish_reason == "stop"]
        assert ended
        for run in ended:
            assert ids_of(run)[-1] == eog
            assert run[-1].completion_tokens == len(ids_of(run))
            assert eog not in ids_of(run)[:-1]
        ignoring = texts_of(model, "hello", bias, beams=4, n=20, ends_at_eog=False)
        assert {run[-1].completion_tokens for run in ignoring} == {20}


def test_a_full_context_ends_texts(small_context):
    prompt = [1, *[600] * 249]
    runs = texts_of(small_context, prompt, n=None)
    assert {(run[-1].completion_tokens, run[-1].finish_reason) for run in runs} == {(7, "context")}
    runs = texts_of(small_context, prompt, n=6)
    assert {(run[-1].completion_tokens, run[-1].finish_reason) for run in runs} == {(6, "length")}
    with pytest.raises(ModelError, match="the prompt has 257 tokens and the context holds 256"):
        texts_of(small_context, [600] * 257)


def test_no_tokens(pruned):
    (run,) = texts_of(pruned, n=0)
    assert (run[-1].text, run[-1].score, run[-1].finish_reason) == ("", 0.0, "length")


def test_a_chat_an_echo_and_healing(pruned):
    chat = ChatMessages([{"role": "user", "content": "Hello"}], template="chatml")
    assert all(run[-1].text for run in texts_of(pruned, chat))
    plain, echoed = (texts_of(pruned, echo=echo, logprobs=LogprobRequest(0)) for echo in (False, True))
    assert [ids_of(run) for run in plain] == [ids_of(run) for run in echoed]
    for run in echoed:
        assert tuple(event.id for event in run if isinstance(event, PromptToken)) == run[0].prompt_ids
    healed = texts_of(pruned, "The capital of Fran", heal=True, beams=4)
    drawn = list(generate(pruned, GenerationRequest.of("The capital of Fran", "greedy", max_tokens=1, heal=True)))
    assert healed[0][0].prompt_ids == drawn[0].prompt_ids
    assert all(b"".join(event.own_data for event in run[1:-1]).decode() == run[-1].text for run in healed)


def test_an_interruption_keeps_the_texts(pruned):
    calls = []
    request = GenerationRequest.of(PROMPT, "dist", max_tokens=50, beams=BeamSearch(3))
    runs = generate_beams(pruned, request, progress=calls.append, is_interrupted=lambda: len(calls) == 4)
    assert {(run[-1].completion_tokens, run[-1].finish_reason) for run in runs} == {(5, "interrupted")}
    assert calls == [1, 2, 3, 4]
    assert [ids_of(run) for run in runs] == [ids_of(run) for run in texts_of(pruned, n=5)]


def test_an_abort_keeps_the_texts(pruned):
    """The first Ctrl-C aborts llama.cpp's call, whose texts end with the tokens before it."""
    request = GenerationRequest.of(PROMPT, "dist", max_tokens=50, beams=BeamSearch(3))

    def abort_at_fourth(token_count):
        if token_count == 4:
            pruned.abort()

    runs = generate_beams(pruned, request, progress=abort_at_fourth, is_interrupted=lambda: False)
    assert [ids_of(run) for run in runs] == [ids_of(run) for run in texts_of(pruned, n=5)]
    assert {run[-1].finish_reason for run in runs} == {"interrupted"}
    with pytest.raises(AbortedError):
        generate_beams(pruned, request, progress=abort_at_fourth)
    pruned.abort()
    (run,) = generate_beams(pruned, request, is_interrupted=lambda: False)
    assert (run[-1].text, run[-1].finish_reason) == ("", "interrupted")
    assert texts_of(pruned, n=2)[0][-1].finish_reason == "length"


def test_searches_among_requests_of_a_batch(pruned):
    """Each search has the best text of `generate_beams`, and the other requests have their own tokens."""
    search = GenerationRequest.of(PROMPT, "dist", max_tokens=6, beams=BeamSearch(3), id="search")
    drawn = [GenerationRequest.of(PROMPT, "temp1", max_tokens=12, seed=seed, id=seed) for seed in range(3)]
    wrong = GenerationRequest.of(PROMPT, "mirostat", beams=BeamSearch(2), id="wrong")
    counts = []
    requests = [drawn[0], search, drawn[1], wrong, drawn[2]]
    answers = {each.id: each for each in generate_many(pruned, requests, 2, progress=counts.append)}
    best = generate_beams(pruned, search)[0]
    assert answers["search"].tokens == tuple(event for event in best if isinstance(event, Token))
    assert answers["search"].done.score == best[-1].score
    assert isinstance(answers["wrong"], BatchFailure)
    assert not answers["wrong"].has_begun
    for request in drawn:
        assert ids_of(answers[request.id].tokens) == ids_of(generate(pruned, request))
    assert sum(counts) == 6 + 3 * 12


def test_a_deterministic_search_is_exact(tmp_path):
    path = write_model(tmp_path / "model.gguf", "mamba")
    with Model.load(path, n_ctx=256, batch=64, threads=1) as model:
        request = GenerationRequest.of(PROMPT, "dist", max_tokens=12, beams=BeamSearch(3), id=1)
        (answer,) = generate_many(model, [request], 2, deterministic=True)
        assert answer.exactness.level is ExactnessLevel.EXACT
        (best, *_) = generate_beams(model, request)
        assert best[0].batch_exactness.level is ExactnessLevel.ROUNDING
        assert ids_of(answer.tokens) == ids_of(best)


def test_a_request_with_beams_is_not_drawn(pruned):
    request = GenerationRequest.of(PROMPT, "dist", beams=BeamSearch(2), id=1)
    with pytest.raises(ModelError, match="call generate_beams"):
        next(generate(pruned, request))
    with BatchEngine(pruned, 2) as engine:
        engine.add(replace(request, max_tokens=3))
        pruned.abort()
        with pytest.raises(AbortedError):
            engine.step()
        events = [event for _, event in engine.step()]
        assert ids_of(events) == ids_of(texts_of(pruned, beams=2, n=3)[0])
        assert engine.is_idle
    with pytest.raises(ModelError, match="the request has no settings of a beam search"):
        generate_beams(pruned, GenerationRequest.of(PROMPT, "dist"))
    with pytest.raises(ModelError, match="beams: 0 is not"):
        texts_of(pruned, beams=0)

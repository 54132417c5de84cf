"""Many requests together: each gets the same tokens as alone, whatever the other requests are."""

import dataclasses
import itertools
import random

import pytest
from logitsmith.engine import (
    BatchAnswer,
    GenerationRequest,
    LogprobRequest,
    ModelError,
    generate,
    generate_many,
)
from logitsmith.grammars import resolve_grammar
from logitsmith.samplers import build

STORY = "top-k40 > top-p0.95 > temp0.9"
SYSTEM = "You answer in one short sentence, politely, and never say what you do not know for sure. " * 8
CHAINS = [
    STORY,
    "greedy",
    "temp1.3 > min-p0.05",
    "penalties(repeat=1.2) > temp0.8",
    "temp0.7 > mirostat-v2",
    "dry(multiplier=0.8) > top-k20 > temp1",
    "typical0.9 > temp1",
    "xtc(probability=0.5, threshold=0.1) > temp1",
    "k-shift(k=3, steps=2) > length-decay(factor=1.3, start=2) > p-less(norm=true)",
    'sequence-bias(bias={"the sea": 4, " the": -2}, ids=[[[28, 260], 3]]) > min-k > edt(theta=0.3)',
    'scripts=["Latin"] > temp2',
]


def make_request(model, key, prompt, chain=STORY, seed=None, **options):
    options.setdefault("max_tokens", 12)
    built = build(chain, seed=len(str(key)) if seed is None else seed, vocab=model.vocabulary)
    return GenerationRequest(prompt, built, id=key, **options)


def generate_alone(model, request):
    """The tokens and the last event of `generate`."""
    logprobs = request.logprobs
    model.context.truncate(0)  # a beginning that was read in a longer piece would move the logits a little
    events = generate(
        model,
        request.prompt,
        request.chain,
        request.constraint,
        stop=request.stop,
        max_tokens=request.max_tokens,
        top_logprobs=logprobs.top_count,
        logprobs_from=logprobs.source,
        complete_sentence=request.complete_sentence,
    )
    _, *tokens, done = events
    return tokens, done


def generate_batch(model, requests, parallel, **options):
    answers = list(generate_many(model, requests, parallel, **options))
    assert all(isinstance(outcome, BatchAnswer) for outcome in answers), answers
    return {outcome.id: outcome for outcome in answers}


def ids_of(tokens):
    return [token.id for token in tokens]


def exact_outputs(answers):
    """The token ids with their logprobs, to the last bit, and the text, by key."""
    return {
        key: ([(t.id, t.distributions) for t in answer.tokens], answer.done.text)
        for key, answer in answers.items()
    }


@pytest.mark.parametrize("parallel", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_each_gets_what_generate_gives_it(model, parallel):
    prompts = ["Once upon a time", "def f(x):"]

    def requests():
        for number, (prompt, chain) in enumerate(zip(itertools.cycle(prompts), CHAINS, strict=False)):
            yield make_request(model, number, prompt, chain, seed=number, max_tokens=5 + number % 7)

    answers = generate_batch(model, requests(), parallel)
    assert set(answers) == set(range(len(CHAINS)))
    for request in requests():
        tokens, done = generate_alone(model, request)
        assert ids_of(answers[request.id].tokens) == ids_of(tokens)
        theirs, ours = (dataclasses.replace(d, timings=done.timings) for d in (answers[request.id].done, done))
        assert theirs == ours


def long_requests(model, seed=0, count=6):
    """Prompts of up to 350 tokens, many with a common beginning; llama.cpp changes kernels at 64 and 257."""
    draw = random.Random(seed)
    words = ["sea", "salt", "ship", "storm", "light", "house", "night", "stone", "bird", "sail"]
    for key in range(count):
        prompt = SYSTEM * (key % 3) + " ".join(draw.choices(words, k=draw.choice([3, 50, 64, 90])))
        logprobs = LogprobRequest(2)
        yield make_request(model, key, prompt, seed=key, max_tokens=[4, 8, 6][key % 3], logprobs=logprobs)


def test_neither_order_nor_neighbors_nor_shared_beginnings_change_a_bit(model):
    requests = list(long_requests(model, count=3))
    once = exact_outputs(generate_batch(model, requests, 3))
    assert exact_outputs(generate_batch(model, requests[::-1], 8)) == once
    for request in requests[2:3]:
        assert exact_outputs(generate_batch(model, [request], 2)) == {request.id: once[request.id]}


@pytest.mark.slow
def test_neither_order_nor_neighbors_change_a_bit_of_many(model):
    requests = [
        *long_requests(model, 2, 60),
        make_request(model, "long", "A long story:", max_tokens=600, logprobs=LogprobRequest(0)),
    ]
    once = exact_outputs(generate_batch(model, requests, 8))
    for parallel in (2, 5, 12):
        random.Random(parallel).shuffle(requests)
        assert exact_outputs(generate_batch(model, requests, parallel)) == once
    print(f"\n{len(requests)} requests, each the same to the last bit at 8, 2, 5 and 12 at a time, in four orders")


def test_shared_beginnings_are_read_once(model):
    requests = [make_request(model, n, SYSTEM + f" Question {n}", max_tokens=2) for n in range(4)]
    answers = generate_batch(model, requests, 2)
    cached = [answers[n].start.cached_tokens for n in range(4)]
    length = len(model.vocabulary.tokenize_prompt(SYSTEM.encode()))
    assert cached[0] == 0
    assert all(length - 80 < count <= length and count % 16 == 0 for count in cached[1:])


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="short"),
        pytest.param(SYSTEM, id="of two pieces", marks=pytest.mark.slow),
        pytest.param(SYSTEM * 5, id="of many", marks=pytest.mark.slow),
    ],
)
def test_the_first_token_is_what_generate_computes(model, before):
    """To the last bit, also if the beginning is shared, and whatever the length of the end."""
    ends = [0, 63, 64]
    requests = [
        make_request(model, n, before + " sea" * n, max_tokens=1, logprobs=LogprobRequest(5)) for n in ends
    ]
    answers = generate_batch(model, requests, 3)
    for request in requests:
        assert answers[request.id].tokens == tuple(generate_alone(model, request)[0]), request.id


def test_each_request_has_its_own_grammar_and_stop_texts(model):
    number, yes = resolve_grammar({"regex": "[0-9]{3}"}), resolve_grammar({"gbnf": 'root ::= "yes" | "no"'})

    def requests():
        for key in range(4):
            spec = (number, yes, None)[key % 3]
            yield make_request(
                model,
                key,
                "Say it:",
                seed=key,
                constraint=spec.start(model.vocabulary) if spec else None,
                complete_sentence=spec is not None,
                stop=(" the",) if spec is None else (),
                max_tokens=30,
            )

    answers = generate_batch(model, requests(), 4)
    for request in requests():
        answer = answers[request.id]
        assert answer.done.text == generate_alone(model, request)[1].text
        if request.id % 3 == 0:
            assert answer.done.text.isdecimal()
        elif request.id % 3 == 1:
            assert answer.done.text in ("yes", "no")
        else:
            assert " the" not in answer.done.text
    assert answers[1].done.finish_reason == "grammar"


def test_forced_tokens_are_read_beside_others_and_change_no_bit(model):
    spec = resolve_grammar(
        {"gbnf": 'root ::= "{\\"a long name of a field\\": " [0-9] ", \\"another one\\": " [0-9] "}"'}
    )

    def requests():
        for key in range(5):
            yield make_request(
                model,
                key,
                "Data:" + " and more" * key,
                seed=key,
                constraint=spec.start(model.vocabulary),
                max_tokens=60,
                logprobs=LogprobRequest(2),
            )

    answers = generate_batch(model, requests(), 4)
    assert all(answer.done.forced_tokens > 5 and answer.done.complete for answer in answers.values())
    for request in requests():
        assert answers[request.id].tokens == tuple(generate_alone(model, request)[0])


def test_the_context_of_a_request_can_be_filled(small_context):
    prompt = [1000 + n % 300 for n in range(251)]
    answers = generate_batch(
        small_context, [make_request(small_context, n, prompt, seed=n, max_tokens=None) for n in range(2)], 2
    )
    for answer in answers.values():
        assert answer.done.finish_reason in ("context", "stop")
        assert answer.start.prompt_tokens + answer.done.completion_tokens <= 257
    assert any(answer.done.finish_reason == "context" for answer in answers.values())


def test_requests_are_taken_as_slots_are_free_and_not_after_stopping(model):
    asked = []

    def requests():
        for key in range(20):
            asked.append(key)
            yield make_request(model, key, "The", max_tokens=4)

    answered = []
    for outcome in generate_many(model, requests(), 2, should_stop=lambda: len(answered) >= 3):
        answered.append(outcome.id)
        assert len(asked) <= len(answered) + 2
    assert set(answered) == set(asked)
    assert len(asked) < 8


@pytest.mark.parametrize("parallel", [0, -1, 257, True, "2"])
def test_an_impossible_parallel_is_refused(model, parallel):
    with pytest.raises(ModelError, match="parallel"):
        list(generate_many(model, [make_request(model, 0, "The")], parallel))


def test_nothing_to_do_gives_nothing(model):
    assert list(generate_many(model, [], 4)) == []
    done = generate_batch(model, [make_request(model, 0, "The", max_tokens=0)], 4)[0].done
    assert (done.text, done.finish_reason) == ("", "length")


def test_progress_counts_every_token(model):
    made = []
    answers = generate_batch(model, [make_request(model, n, "The sea") for n in range(5)], 3, progress=made.append)
    assert sum(made) == sum(answer.done.completion_tokens for answer in answers.values()) > 0

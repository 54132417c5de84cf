"""Requests that join, advance and leave at any step: each gets what it gets alone, and no slot is lost."""

import pickle
import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from logitsmith.engine import (
    AbortedError,
    BatchEngine,
    BatchFailure,
    ChatMessages,
    Done,
    GenerationRequest,
    Guidance,
    LogprobRequest,
    Model,
    ModelError,
    PromptToken,
    Start,
    Token,
    format_chat,
    generate,
    generate_many,
    score_prompt,
)
from logitsmith.engine.context import common_token_count
from logitsmith.engine.native.binding import lib
from logitsmith.engine.native.context import NativeContext
from logitsmith.grammars import GrammarError, resolve_grammar
from logitsmith.logprobs.events import ExactnessLevel
from logitsmith.models.errors import PromptTooLongError
from logitsmith.samplers import Sampler, SamplerInfo, SamplingError, build, parse_chain
from logitsmith.samplers.chain import StepSpec

from .small_models import write_model

SYSTEM = "You answer in one short sentence, politely, and never say what you do not know for sure. " * 8
MESSAGE = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
TEMPLATE = "{% for m in messages %}" + MESSAGE + "{% endfor %}<|im_start|>assistant\n"


def steps(chain):
    return tuple(StepSpec(sampler) for sampler in parse_chain(chain))


def request(name, prompt="The sea was", chain="top-k40 > temp0.9", seed=3, **options):
    return GenerationRequest(prompt, steps(chain), **{"max_tokens": 6, "seed": seed, "id": name, **options})


def drain(engine, limit=200):
    """All events until nothing runs."""
    events = []
    while not engine.is_idle:
        events += engine.step()
        assert len(events) < limit
    return events


def alone(model, asked):
    """Return the events of the request in an empty context."""
    model.context.truncate(0)
    return list(generate(model, asked))


def said(events):
    """Return what must be the same wherever a text is computed."""
    return [(event.id, event.text, event.distributions) for event in events if isinstance(event, Token)]


def ends(events):
    return [(event.finish_reason, event.text, event.complete) for event in events if isinstance(event, Done)]


def held(engine):
    """Return how many tokens llama.cpp holds of each sequence, and how many the slots say."""
    native, slots = engine._slots._native, engine._slots.slots
    memory = lib.llama_get_memory(native.handle)
    return [(int(lib.llama_memory_seq_pos_max(memory, slot.number)) + 1, len(slot.tokens)) for slot in slots]


def test_requests_join_and_end_at_any_step(model):
    with BatchEngine(model, 2) as engine:
        engine.add(request("a", max_tokens=9))
        events = engine.step()
        engine.add(request("b", "Salt and", max_tokens=3))
        assert engine.free_slots == 0
        engine.add(request("c", "Once", max_tokens=2))
        assert engine.free_slots == -1
        events += drain(engine)
        assert engine.free_slots == 2
    names = [name for name, _ in events]
    assert names[:2] == ["a", "a"]  # its prompt is read, and gives the first token
    assert names.index("c") > names.index("b") > 1
    for asked in (
        request("a", max_tokens=9),
        request("b", "Salt and", max_tokens=3),
        request("c", "Once", max_tokens=2),
    ):
        own = [event for name, event in events if name == asked.id]
        kinds = [type(event) for event in own]
        assert kinds == [Start, *[Token] * asked.max_tokens, Done]
        assert said(own) == said(alone(model, asked))


def test_a_canceled_request_leaves_its_slot_immediately(model):
    with BatchEngine(model, 1) as engine:
        engine.add(request("long", max_tokens=100))
        engine.add(request("waits"))
        engine.add(request("next", "Salt"))
        engine.step()
        assert engine.cancel("waits")
        assert engine.cancel("long")
        assert not engine.cancel("long")
        assert {name for name, _ in drain(engine)} == {"next"}
        assert engine.free_slots == 1


def test_an_interrupted_request_keeps_its_text(model):
    with BatchEngine(model, 1) as engine:
        engine.add(request("long", max_tokens=100))
        engine.add(request("waits", np.array([1, 2, 3])))
        tokens = [event for _ in range(3) for _, event in engine.step() if isinstance(event, Token)]
        (failure,) = engine.interrupt("waits").events
        assert not failure.has_begun
        (done,) = engine.interrupt("long").events
        assert done.finish_reason == "interrupted"
        assert done.text == "".join(token.text for token in tokens) + done.rest
        assert done.completion_tokens == len(tokens)
        assert engine.interrupt("long") is None
        assert engine.free_slots == 1


@pytest.mark.parametrize("has_grammar", [False, True])
def test_a_text_continues_after_an_end_of_generation_token(model, has_grammar):
    """A grammar that is complete ends the text all the same."""
    eog = sorted(model.vocabulary.eog)[0]
    constraint = resolve_grammar({"gbnf": 'root ::= "a"*'}) if has_grammar else None
    biased = [{"logit_bias": {"bias": {eog: 1000.0}}}, "greedy"]
    with BatchEngine(model, 1) as engine:
        engine.add(request("a", chain=biased, constraint=constraint, max_tokens=3, ends_at_eog=False))
        events = [event for _, event in drain(engine)]
    assert [event.id for event in events if isinstance(event, Token)] == [eog] * (1 if has_grammar else 3)
    assert events[-1].text == ""


@pytest.mark.parametrize("prompt", ["The sea", "The sea was calm and the ship " * 20], ids=["short", "long"])
def test_an_echo_has_the_logprobs_of_a_score(model, prompt):
    logprobs = LogprobRequest(2)
    asked = request("echo", prompt, logprobs=logprobs, echo=True)
    with BatchEngine(model, 2) as engine:
        engine.add(request("other", "Salt", max_tokens=12))
        engine.add(asked)
        events = [event for name, event in drain(engine) if name == "echo"]
    echoed = [event for event in events if isinstance(event, PromptToken)]
    model.context.truncate(0)
    ids = model.vocabulary.tokenize_prompt(prompt.encode())
    assert echoed == list(score_prompt(model, ids, logprobs))
    assert said(events) == said(alone(model, replace(asked, echo=False)))
    (answer,) = generate_many(model, [asked], 2)
    assert answer.events == (*events[:-1], answer.done)


def test_a_request_can_be_pickled_and_is_built_by_the_engine(model):
    grammar = resolve_grammar({"regex": "[a-z ]{3,8}"})
    asked = request("p", constraint=grammar, complete_sentence=True, max_tokens=3)
    copied = pickle.loads(pickle.dumps(asked))
    assert copied == asked
    first, second = alone(model, asked), alone(model, copied)
    assert said(first) == said(second)
    assert first[0].grammar == grammar.description
    (answer,) = generate_many(model, [copied], 1)
    assert said(answer.events) == said(first)


def test_a_chat_goes_through_its_template(model):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    prompt = ChatMessages(messages, TEMPLATE)
    from logitsmith.engine import open_chat_template

    text = format_chat(model, messages, open_chat_template(model, TEMPLATE))
    asked = request("chat", prompt, beginning="Well")
    assert said(alone(model, asked)) == said(alone(model, replace(asked, prompt=text + "Well")))


def test_a_note_on_a_template_comes_once(model):
    template = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    notes = []
    requests = [request(number, ChatMessages(messages, template), max_tokens=1) for number in range(3)]
    list(generate_many(model, requests, 2, note=notes.append))
    assert len(notes) == 1
    assert "no system role" in notes[0]


def test_a_grammar_reads_the_beginning_of_the_answer(model):
    grammar = resolve_grammar({"gbnf": 'root ::= "one" | "two" | "twenty"'})
    asked = request("b", "Count: tw", constraint=grammar, beginning="tw", max_tokens=20)
    assert ("tw" + alone(model, asked)[-1].text) in ("two", "twenty")
    (failure,) = generate_many(model, [replace(asked, beginning="three")], 1)
    assert "the answer's beginning does not match the grammar" in str(failure.error)
    assert not failure.has_begun


def test_a_request_takes_the_slot_that_holds_its_beginning(model):
    stories = {name: f"{name}: " + SYSTEM for name in ("first", "second", "third")}
    with BatchEngine(model, 3) as engine:
        for name, text in stories.items():
            engine.add(request(name, text, max_tokens=1))
        drain(engine)
        slots = [slot.tokens[:] for slot in engine._slots.slots]
        for name in ("third", "first"):
            engine.add(request(name, stories[name] + "What is salt?", max_tokens=1))
            start = drain(engine)[0][1]
            assert start.cached_tokens > start.prompt_tokens // 2
        assert [
            len(slot.tokens) > len(before) for slot, before in zip(engine._slots.slots, slots, strict=True)
        ] == [
            True,
            False,
            True,
        ]


class Faulty:
    """A constraint that fails at its n-th mask."""

    def __init__(self, size, fails_at, error):
        self._mask, self._left, self._error = np.ones(size, bool), fails_at, error

    def mask(self):
        if self._left == 0:
            raise self._error
        self._left -= 1
        return self._mask

    def accept(self, token):
        pass


@pytest.mark.parametrize("fails_at", [0, 2])
@pytest.mark.parametrize("error", [ValueError("a fault"), GrammarError("a sentence")], ids=["any", "named"])
def test_a_fault_of_one_request_ends_it_alone(model, error, fails_at):
    bad = request("bad", constraint=Faulty(model.vocabulary.size, fails_at, error))
    with BatchEngine(model, 2) as engine:
        engine.add(request("good"))
        engine.add(bad)
        events = drain(engine)
        assert engine.free_slots == 2
    *made, failure = [event for name, event in events if name == "bad"]
    assert [type(event) for event in made] == [Start, *[Token] * fails_at]
    assert (failure.error, failure.has_begun) == (error, True)
    assert said([event for name, event in events if name == "good"]) == said(alone(model, request("good")))


def test_a_fault_that_is_not_a_sentence_ends_generate_many(model):
    bad = request("bad", constraint=Faulty(model.vocabulary.size, 1, ValueError("a fault")))
    with pytest.raises(ValueError, match="a fault"):
        list(generate_many(model, [bad], 2))


WRONG = {
    "chain": ({"chain": "top-k40", "seed": 2**63}, SamplingError),
    "grammar": ({"constraint": resolve_grammar({"gbnf": 'root ::= "a" <not-a-token>'})}, GrammarError),
    "a token": ({"prompt": [10**9]}, ModelError),
    "a long prompt": ({"prompt": "sea " * 3000}, PromptTooLongError),
    "a shift": ({"keep_on_shift": 0}, ModelError),
    "a negative length": ({"max_tokens": -3}, ModelError),
    "the type of stop": ({"stop": [3]}, Exception),
    "the type of the prompt": ({"prompt": 5}, Exception),
    "the type of a length": ({"max_tokens": "3"}, Exception),
    "no logprobs": ({"logprobs": None}, Exception),
    "the type of a trace": ({"trace": 0}, Exception),
}


@pytest.mark.parametrize(("wrong", "error"), WRONG.values(), ids=WRONG)
def test_a_wrong_request_fails_alone(model, wrong, error):
    with BatchEngine(model, 2) as engine:
        engine.add(request("good"))
        bad = request("bad", chain=wrong.get("chain", "greedy"), seed=wrong.get("seed", 3))
        engine.add(replace(bad, **{name: value for name, value in wrong.items() if name not in ("chain", "seed")}))
        events = drain(engine)
        assert engine.free_slots == 2
    *made, failure = (event for name, event in events if name == "bad")
    assert isinstance(failure, BatchFailure)
    assert isinstance(failure.error, error)
    assert failure.has_begun == bool(made)
    assert not made or error is Exception
    assert said([event for name, event in events if name == "good"]) == said(alone(model, request("good")))


def test_an_abort_loses_nothing(model):
    """The requests continue, also with drafts that were rejected before."""
    requests = [
        request(name, "one two three one two three one two", "greedy", lookup=lookup, max_tokens=24, seed=1)
        for name, lookup in (("plain", 0), ("drafts", 8))
    ]
    for aborted_at in range(1, 16, 2):
        with BatchEngine(model, 2) as engine:
            for asked in requests:
                engine.add(asked)
            events = []
            for step in range(40):
                # An abort after the last decode would wait for the next one, which is not part of this engine.
                if not engine.is_idle and (step == aborted_at or (step == 0 and aborted_at == 1)):
                    model.abort()
                try:
                    events += engine.step()
                except AbortedError:
                    assert step in (0, aborted_at)
            assert engine.is_idle
            exact = engine.exactness.level.value == "exact"
        for asked in requests:
            own = [event for name, event in events if name == asked.id]
            assert [type(event) for event in own] == [Start, *[Token] * (len(own) - 2), Done]
            assert not exact or said(own) == said(alone(model, asked))


FAILING = {
    "one request's tokens never": (lambda sequences: 1 in sequences, {"b"}),
    "several together never": (lambda sequences: len(sequences) > 1, set()),
    "none": (lambda sequences: True, {"a", "b", "c"}),
}


@pytest.mark.parametrize(("is_failing", "failed"), FAILING.values(), ids=FAILING)
@pytest.mark.parametrize("guided", [False, True], ids=["plain", "guided"])
def test_tokens_that_llama_cpp_cannot_read_end_their_request_alone(model, monkeypatch, is_failing, failed, guided):
    """As when the memory of a GPU is full in the middle of a batch."""
    more = {"guidance": Guidance(1.5, "x")} if guided else {}
    requests = [
        GenerationRequest.of(
            "The sea was", steps("greedy"), id=name, max_tokens=8, seed=3, ends_at_eog=False, **more
        )
        for name in "abc"
    ]
    decode, is_full = NativeContext.decode_spans, False

    def decode_if_possible(native, spans, all_logits=True):
        if is_full and is_failing({span.sequence for span in spans}):
            raise ModelError("llama.cpp could not decode (code -2): no memory")
        return decode(native, spans, all_logits)

    monkeypatch.setattr(NativeContext, "decode_spans", decode_if_possible)
    with BatchEngine(model, 3) as engine:
        for asked in requests:
            engine.add(asked)
        events = engine.step()
        is_full = True
        while not engine.is_idle:
            events += engine.step()
        is_full = False
        engine.add(replace(requests[0], id="later"))
        while not engine.is_idle:
            events += engine.step()
    last = dict(events)
    assert {name for name, event in last.items() if isinstance(event, BatchFailure)} == failed
    assert all("no memory" in str(last[name].error) for name in failed)
    assert {name for name, event in last.items() if isinstance(event, Done)} == {*"abc", "later"} - failed
    assert all(event.completion_tokens == 8 for event in last.values() if isinstance(event, Done))


FAILURES = {"no memory": ModelError("llama.cpp has no memory left"), "an abort": AbortedError()}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("architecture", ["llama", "mamba", "rwkv7", "jamba"])
def test_a_state_that_a_failed_decode_has_changed_is_computed_again(tmp_path, monkeypatch, architecture, failure):
    """llama.cpp cannot truncate a recurrent state, so that a token must not be read a second time."""
    path = write_model(tmp_path / "m.gguf", architecture, "rwkv" if architecture == "rwkv7" else "gpt2")
    decode, calls = NativeContext.decode_spans, []

    def decode_and_fail(native, spans, all_logits=True):
        decode(native, spans, all_logits)
        calls.append(len(spans))
        if len(calls) == fails_at:
            raise failure

    def answers(model):
        with BatchEngine(model, 3) as engine:
            for number in range(3):
                prompt = [(7 * place + number) % model.vocabulary.size for place in range(9)]
                engine.add(request(number, prompt, "greedy", max_tokens=8, ends_at_eog=False))
            events = []
            while not engine.is_idle:
                with suppress(AbortedError):
                    events += engine.step()
        assert not [event for _, event in events if isinstance(event, BatchFailure)]
        return sorted((name, event.index, event.id) for name, event in events if isinstance(event, Token))

    with Model.load(path, n_ctx=192, threads=1) as model:
        fails_at = 0
        expected = answers(model)
        monkeypatch.setattr(NativeContext, "decode_spans", decode_and_fail)
        fails_at = 6
        assert answers(model) == expected
    assert calls[5] == 3  # a decode of all requests failed


FORCED = 'root ::= [A-Z] "unexpectedly, seventeen purple elephants" " danced" [a-z]+ "."'


def test_an_abort_while_forced_tokens_are_compared_loses_nothing(model, monkeypatch):
    """Several tokens are read in one call and one by one; an abort may come at each of these calls."""
    asked = request("forced", "Say: ", "greedy", constraint=resolve_grammar({"gbnf": FORCED}), max_tokens=30)
    expected = said(alone(model, asked))
    decode, calls, aborted_at = NativeContext.decode_spans, 0, 0

    def aborting(native, spans, all_logits=True):
        nonlocal calls
        calls += 1
        if calls == aborted_at:
            raise AbortedError
        return decode(native, spans, all_logits)

    monkeypatch.setattr(NativeContext, "decode_spans", aborting)

    def run_with_abort(number):
        """Return the number of aborts and of calls."""
        nonlocal aborted_at, calls
        aborted_at = 0  # the making of the slots may decode, too
        with BatchEngine(model, 2) as engine:
            engine._slots._plan.is_one_call_exact_by_count.clear()
            engine.add(asked)
            aborted_at, calls, events, abort_count = number, 0, [], 0
            while not engine.is_idle:
                try:
                    events += engine.step()
                except AbortedError:
                    abort_count += 1
        assert said(event for _, event in events) == expected
        return abort_count, calls

    abort_count, call_count = run_with_abort(0)
    assert (abort_count, call_count > 4) == (0, True), call_count
    for number in range(2, min(call_count, 13)):
        abort_count, calls_made = run_with_abort(number)
        assert (abort_count, calls_made > number) == (1, True)


def test_a_constraint_reads_the_beginning_once(model):
    """An abort while the prompt is read returns the request to the queue; its constraint was started before."""
    text = "The answer is"
    constraint = resolve_grammar({"gbnf": f'root ::= "{text}" [a-z ]+'}).start(model.vocabulary)
    asked = request("begun", text, constraint=constraint, beginning=text)
    with BatchEngine(model, 1) as engine:
        engine.add(asked)
        model.abort()
        with pytest.raises(AbortedError):
            engine.step()
        events = [event for _, event in drain(engine)]
    assert isinstance(events[-1], Done)


def test_a_canceled_request_has_no_events_that_were_not_delivered(model):
    with BatchEngine(model, 2) as engine:
        engine.add(request("first"))
        engine.add(request("second", constraint=Interrupting(model, 0, AbortedError)))
        with pytest.raises(AbortedError):
            engine.step()
        assert engine.cancel("first")
        assert {name for name, _ in drain(engine)} <= {"second"}


class Interrupting:
    """A constraint that raises an exception at one of its masks."""

    description = None

    def __init__(self, model, count, error):
        self._mask, self._count, self._error = np.ones(model.vocabulary.size, bool), count, error

    def mask(self):
        self._count -= 1
        if self._count < 0:
            self._count = 10**9
            raise self._error
        return self._mask

    def accept(self, token):
        pass


def test_ctrl_c_in_the_code_of_a_request_ends_this_request_only(model):
    with BatchEngine(model, 2) as engine:
        engine.add(request("interrupted", constraint=Interrupting(model, 3, KeyboardInterrupt)))
        engine.add(request("other", "A man in", max_tokens=9))
        events = []
        while not engine.is_idle:
            try:
                events += engine.step()
            except KeyboardInterrupt:
                continue
        failures = [event for name, event in events if name == "interrupted"][-1:]
        assert [str(failure.error) for failure in failures] == ["the request was interrupted"]
        assert held(engine) == [(size, size) for _, size in held(engine)]
    other = [event for name, event in events if name == "other"]
    assert said(other) == said(alone(model, request("other", "A man in", max_tokens=9)))


@pytest.mark.parametrize("deterministic", [False, True])
def test_closing_in_a_step_is_no_crash(model, deterministic):
    with BatchEngine(model, 3, deterministic=deterministic) as engine:
        for name in range(3):
            engine.add(request(name))
        engine.step()
        advancing = engine.advance_running()
        next(advancing)
        engine.close()
        with pytest.raises(ModelError, match=r"^the (batch|context) is closed$"):
            next(advancing)
        engine.close()
        assert engine.is_idle
        for use in (engine.step, lambda: engine.add(request("b"))):
            with pytest.raises(ModelError, match=r"^the batch is closed$"):
                use()


def test_closing_in_a_note_is_no_crash(model):
    refuse_system = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    notes = []
    engine = BatchEngine(model, 1, note=lambda note: (notes.append(note), engine.close()))
    engine.add(request("chat", ChatMessages(messages, refuse_system + "{{ messages[0].content }}")))
    with pytest.raises(ModelError, match=r"^the batch is closed$"):
        engine.step()
    assert notes


def test_no_prompt_is_read_while_requests_are_advanced(model):
    with BatchEngine(model, 2) as engine:
        for name in ("a", "b"):
            engine.add(request(name))
        engine.step()
        advancing = engine.advance_running()
        next(advancing)
        engine.cancel("b")
        engine.add(request("c", "Once upon"))
        for again in (engine.begin_waiting, engine.advance_running):
            with pytest.raises(ModelError, match="in a step"):
                next(again())
        advancing.close()
        events = [event for name, event in drain(engine) if name == "c"]
        exact = engine.exactness.level.value == "exact"
    assert not exact or said(events) == said(alone(model, request("c", "Once upon")))


def test_a_row_that_requests_share_cannot_be_written(model):
    class Reversing(Sampler):
        about = SamplerInfo(
            name="reversing", summary="writes into the logits", formula="", reference="", llama_cpp="none"
        )

        def apply(self, c):
            c.logits[:] = c.logits[::-1].copy()

    chain = build([Reversing(), "greedy"], vocab=model.vocabulary)
    with BatchEngine(model, 1) as engine:
        before = [event for _, event in run_one(engine, request("before", chain="greedy"))]
        run_one(engine, replace(request("bad"), chain=chain))
        after = [event for _, event in run_one(engine, request("after", chain="greedy"))]
    assert said(after) == said(before)


def run_one(engine, asked):
    engine.add(asked)
    return drain(engine)


def test_a_request_that_is_canceled_within_a_step_is_left_out(model):
    with BatchEngine(model, 3) as engine:
        for name in "abc":
            engine.add(request(name))
        engine.step()
        for moved in engine.advance_running():
            if moved.request.id == "a":
                engine.cancel("b")
            assert moved.request.id != "b"
        assert engine.free_slots == 1
        assert {name for name, _ in drain(engine)} == {"a", "c"}


def test_waiting_requests_are_distinguished_by_their_ids(model):
    with BatchEngine(model, 1) as engine:
        for name in range(3):
            engine.add(request(name, np.array([1, 2, 3])))
        assert engine.cancel(2)
        assert engine.free_slots == -1


@pytest.mark.parametrize("tail", ["", " and so on"], ids=["the same", "longer"])
@pytest.mark.parametrize("length", [1, 3, 20], ids=["short", "some", "long"])
def test_the_same_prompt_is_not_read_again(model, length, tail):
    """Also by another slot, while the first one is at work; a longer one reads what it has more."""
    asked = request("first", "The sea was calm. " * length, max_tokens=8, logprobs=LogprobRequest(1))
    again = replace(asked, id="again", prompt=asked.prompt + tail, seed=9)
    with BatchEngine(model, 3) as engine:
        engine.add(asked)
        events = engine.step()
        engine.add(again)
        events += drain(engine)
        engine.add(replace(again, id="third"))
        events += drain(engine)
        exact = engine.exactness.level.value == "exact"
    starts = {name: event for name, event in events if isinstance(event, Start)}
    prompt_tokens = starts["again"].prompt_tokens
    assert starts["third"].cached_tokens == prompt_tokens
    assert (starts["again"].cached_tokens == prompt_tokens) == (not tail)
    for name, one in (("first", asked), ("again", again), ("third", again)):
        own = [event for other, event in events if other == name]
        assert not exact or said(own) == said(alone(model, one))


WORDS = ["sea", "salt", "ship", "def", "42", "house", "night", "The", "bird", "sail", "\n", "été", "雨"]
CHAINS = [
    "greedy",
    "top-k40 > temp0.9",
    "temp1.3 > min-p0.05",
    "penalties(repeat=1.2) > temp0.8",
    "temp0.7 > mirostat-v2",
    "xtc(probability=0.5, threshold=0.1) > temp1",
]
GRAMMARS = [{"regex": "[0-9]{2,6}"}, {"gbnf": 'root ::= "yes" | "no"'}, {"name": "json"}]


def pool(model, count):
    """Requests of many kinds, each with what it gets alone."""
    draw = random.Random(7)
    requests = {}
    for name in range(count):
        grammar = resolve_grammar(draw.choice(GRAMMARS)) if draw.random() < 0.2 else None
        asked = request(
            name,
            " ".join(draw.choices(WORDS, k=draw.choice([1, 4, 12, 40]))),
            draw.choice(CHAINS),
            draw.randrange(2**32),
            constraint=grammar,
            stop=draw.choice([(), (".",), ("\n", " the")]),
            max_tokens=draw.choice([0, 1, 3, 8, 12]),
            logprobs=LogprobRequest(draw.choice([None, 0, 3])),
            complete_sentence=grammar is not None and draw.random() < 0.5,
        )
        requests[name] = asked, alone(model, asked)
    return requests


@pytest.mark.slow
def test_a_thousand_random_sequences_of_add_step_and_cancel(model):
    requests, draw = pool(model, 60), random.Random(1)
    finished = canceled = joined = 0
    with BatchEngine(model, 4) as engine:
        exact = engine.exactness.level.value == "exact"
        for _ in range(1000):
            events, left = {}, set()
            waiting = draw.sample(sorted(requests), draw.randrange(1, 8))
            begun = []
            while waiting or not engine.is_idle:
                action = draw.random()
                if waiting and action < 0.4:
                    begun.append(waiting.pop())
                    engine.add(requests[begun[-1]][0])
                elif begun and action < 0.47:
                    name = draw.choice(begun)
                    if engine.cancel(name):
                        left.add(name)
                else:
                    for name, event in engine.step():
                        assert name not in left
                        events.setdefault(name, []).append(event)
            assert engine.free_slots == 4
            assert all(llama_cpp == ours for llama_cpp, ours in held(engine))
            joined, canceled = joined + len(begun), canceled + len(left)
            for name in begun:
                whole, part = requests[name][1], events.get(name, [])
                if exact:
                    assert said(part) == said(whole)[: len(said(part))], name
                if name not in left:
                    finished += 1
                    assert not exact or ends(part) == ends(whole), name
        print(f"\n1,000 sequences: {joined:,} requests joined, {canceled:,} left, {finished:,} ended as alone")
        print(
            f"4 of 4 slots are free; llama.cpp and the slots hold {[tokens for tokens, _ in held(engine)]} tokens"
        )


@pytest.mark.slow
def test_200_pairs_of_prompts_with_a_common_beginning_are_the_same_warm_and_cold(model):
    draw = random.Random(3)
    kept = 0
    with BatchEngine(model, 3) as engine:
        exact = engine.exactness.level.value == "exact"
        for number in range(200):
            common = " ".join(draw.choices(WORDS, k=draw.choice([5, 40, 90, 200])))
            first, second = (
                common + " " + " ".join(draw.choices(WORDS, k=draw.choice([1, 12, 80]))) for _ in "ab"
            )
            chain, seed = draw.choice(CHAINS), draw.randrange(2**32)
            options = {"max_tokens": 4, "logprobs": LogprobRequest(2)}
            engine.add(request("first", first, chain, seed, **options))
            drain(engine)
            asked = request(number, second, chain, seed, **options)
            engine.add(asked)
            warm = [event for _, event in drain(engine)]
            kept += warm[0].cached_tokens
            (cold,) = generate_many(model, [asked], 3)
            assert cold.start.cached_tokens == 0
            assert not exact or said(warm) == said(cold.events)
            assert not exact or ends(warm) == ends(cold.events)
    assert kept > 0
    print(f"\n200 pairs of prompts: warm as cold; {kept:,} tokens were not read again")


def test_generate_is_the_same_request(model):
    asked = request("g", logprobs=LogprobRequest(1, "both", (5, 7)), trace=2)
    model.context.truncate(0)
    events = generate(
        model,
        "The sea was",
        build("top-k40 > temp0.9", seed=3, vocab=model.vocabulary),
        max_tokens=6,
        top_logprobs=1,
        logprobs_from="both",
        logprob_of=(5, 7),
        trace=2,
    )
    first, second = list(events), alone(model, asked)
    assert [(t.id, t.distributions, t.trace) for t in first[1:-1]] == [
        (t.id, t.distributions, t.trace) for t in second[1:-1]
    ]


@pytest.mark.parametrize("limit", [0, 9, 12, 1000, None])
def test_free_slots_keep_a_limited_number_of_tokens(model, limit):
    with BatchEngine(model, 3, max_idle_tokens=limit) as engine:
        for name, prompt in enumerate(("The sea was", "A man in a boat", "Once upon a time")):
            engine.add(request(name, prompt, max_tokens=4))
        done = {name: event for name, event in drain(engine) if isinstance(event, Done)}
        sizes = [size for size, _ in held(engine)]
        assert held(engine) == [(size, size) for size in sizes]
        counts = [done[name].prompt_tokens + done[name].completion_tokens - 1 for name in range(3)]
        if limit is None or limit >= sum(counts):
            assert sizes == counts
        else:
            assert sum(sizes) <= limit
            assert sorted(size for size in sizes if size) == sorted(
                count for count, size in zip(counts, sizes, strict=True) if size
            )
        engine.add(request("again", "The sea was", max_tokens=4))
        start = next(event for _, event in drain(engine) if isinstance(event, Start))
        assert (start.cached_tokens > 0) == (limit is None or limit >= sum(counts))


def test_a_token_that_ends_the_text(model):
    free = said(alone(model, request("free", max_tokens=6)))
    token = free[3][0]
    expected = free[: [token_id for token_id, _, _ in free].index(token) + 1]
    text = "".join(text for _, text, _ in expected)
    asked = request("ended", stop_token_ids=(token,))
    for events in (alone(model, asked), [event for _, event in drained(model, asked)]):
        assert said(events) == expected
        assert ends(events) == [("stop", text, None)]


def drained(model, *requests):
    with BatchEngine(model, len(requests)) as engine:
        for asked in requests:
            engine.add(asked)
        return drain(engine)


def ids_and_start(engine):
    """The start and the token ids of the only request."""
    events = [event for _, event in drain(engine)]
    return events[0], [event.id for event in events if isinstance(event, Token)]


def test_a_conversation_continues_after_its_answer(model):
    with BatchEngine(model, 2) as engine:
        engine.add(request("first", list(range(300, 390)), max_tokens=20))
        _, answer = ids_and_start(engine)
        prompt = [*range(300, 390), *answer, 301, 302]
        engine.add(request("next", prompt, exact_reuse=False))
        quick, quick_ids = ids_and_start(engine)
        assert quick.cached_tokens == 90 + 19  # the last token of an answer is never read
        assert quick.batch_exactness.level is ExactnessLevel.ROUNDING
        # A request that must be exact takes nothing that was generated, and not the logits of the quick one.
        engine.add(request("exact", prompt))
        exact, exact_ids = ids_and_start(engine)
        assert exact.cached_tokens < 90
        assert exact.batch_exactness == engine.exactness
        engine.add(request("again", prompt, exact_reuse=False))
        again, again_ids = ids_and_start(engine)
        assert again.cached_tokens == len(prompt)  # the logits of the exact request
        assert again.batch_exactness == engine.exactness
        assert again_ids == exact_ids
    assert alone(model, request("alone", prompt))[0].cached_tokens == 0
    with BatchEngine(model, 2) as cold:
        cold.add(request("cold", prompt))
        assert ids_and_start(cold)[1] == exact_ids
    assert len(quick_ids) == 6


def test_a_conversation_is_taken_from_another_slot(model):
    with BatchEngine(model, 3) as engine:
        engine.add(request("long", list(range(300, 390)), max_tokens=60, chain="top-k1"))
        events = [event for _ in range(30) for _, event in engine.step()]
        answer = [event.id for event in events if isinstance(event, Token)]
        engine.add(request("branch", [*range(300, 390), *answer, 301], exact_reuse=False, max_tokens=2))
        (start,) = (event for name, event in engine.step() if name == "branch" and isinstance(event, Start))
        assert start.cached_tokens == 90 + len(answer) - 1
        rest = [event.id for name, event in drain(engine) if name == "long" and isinstance(event, Token)]
    assert len(answer) + len(rest) >= 59  # the donor is not disturbed


def test_a_deterministic_batch_reuses_no_answer(model):
    with BatchEngine(model, 2, deterministic=True) as engine:
        engine.add(request("first", list(range(300, 390)), max_tokens=20))
        _, answer = ids_and_start(engine)
        engine.add(request("next", [*range(300, 390), *answer, 301], exact_reuse=False))
        start, _ = ids_and_start(engine)
    assert start.cached_tokens <= 90
    assert start.batch_exactness.level is ExactnessLevel.EXACT


@pytest.mark.parametrize(
    ("held", "prompt", "count"),
    [
        ([], [1], 0),
        ([1, 2, 3], [1, 2, 3], 3),
        ([1, 2, 3], [1, 2], 2),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 4], [1, 2, 3], 2),
        (list(range(600)), [*range(511), 0, *range(512, 700)], 511),
        (list(range(600)), [*range(512), 0], 512),
        (list(range(300)), list(range(700)), 300),
    ],
)
def test_the_common_beginning(held, prompt, count):
    assert common_token_count(held, prompt) == count

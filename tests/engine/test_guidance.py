"""Classifier-free guidance, against arithmetic on two separate models of the same file."""

import numpy as np
import pytest
from logitsmith.engine import ChatMessages, GenerationRequest, LogprobRequest, Model, generate, generate_many
from logitsmith.engine.guidance import Guidance, guide
from logitsmith.engine.next_token import trace_next, trace_request
from logitsmith.grammars.bans import parse_bans
from logitsmith.grammars.spec import GrammarSpec
from logitsmith.logprobs.events import Done, Token
from logitsmith.models.errors import ModelError
from logitsmith.samplers import build

from .small_models import write_model

PROMPT, NEGATIVE = "The sea was", "A desert of dust and"


def own_run(path, guidance, steps, *, count=20, seed=3, negative_path=None, threads=1, n_ctx=512):
    """Return the tokens and the model's logprobs, from two models that know nothing of each other."""
    with (
        Model.load(path, n_ctx=n_ctx, threads=threads) as first,
        Model.load(negative_path or path, n_ctx=n_ctx, threads=threads) as second,
    ):
        prompt_ids = first.vocabulary.tokenize_prompt(PROMPT.encode())
        negative = guidance.negative_prompt
        negative_ids = prompt_ids[-1:] if negative is None else first.vocabulary.tokenize_prompt(negative.encode())
        if negative is None and negative_path is not None:
            negative_ids = prompt_ids
        first.context.read(prompt_ids)
        second.context.read(negative_ids)
        chain = build(steps, seed=seed, vocab=first.vocabulary)
        chain.reset(prompt_ids)
        tokens, logprobs = [], []
        for _ in range(count):
            row, other = first.context.logits().copy(), second.context.logits().copy()
            token = chain.sample(other + np.float32(guidance.scale) * (row - other))
            chain.accept(token)
            tokens.append(token)
            logprobs.append(float(row[token] - np.logaddexp.reduce(row.astype(np.float64))))
            first.context.append(token)
            second.context.append(token)
    return tokens, logprobs


def run(model, guidance, steps, *, count=20, seed=3, prompt=PROMPT, **fields):
    request = GenerationRequest.of(
        prompt, steps, max_tokens=count, seed=seed, guidance=guidance, ends_at_eog=False, **fields
    )
    return list(generate(model, request))


def tokens_of(events):
    return [event.id for event in events if isinstance(event, Token)]


CHAINS = ["temp1", "top_k40 > penalties(repeat=1.3) > dist", "dry(multiplier=1) > min_p0.05 > dist", "mirostat_v2"]


@pytest.mark.parametrize("steps", CHAINS)
@pytest.mark.parametrize(
    "guidance",
    [Guidance(1.5, NEGATIVE), Guidance(3.0), Guidance(-0.5, NEGATIVE), Guidance(0.0, NEGATIVE)],
    ids=["away", "last token", "towards", "only the negative"],
)
def test_tokens_and_logprobs_are_those_of_own_arithmetic(pruned_model, guidance, steps):
    with Model.load(pruned_model, n_ctx=512, threads=1) as model:
        events = run(model, guidance, steps, logprobs=LogprobRequest(3))
        tokens, logprobs = own_run(pruned_model, guidance, steps)
        assert tokens_of(events) == tokens
        found = [event.distributions[0].logprob for event in events if isinstance(event, Token)]
        assert found == pytest.approx(logprobs, abs=1e-5)
        for event in events:
            if isinstance(event, Token):  # the most likely tokens of the model, not of the chain
                top = event.distributions[0].top
                assert [entry.logprob for entry in top] == sorted((entry.logprob for entry in top), reverse=True)
                assert top[0].logprob >= event.distributions[0].logprob


@pytest.mark.parametrize("architecture", ["llama", "mamba", "jamba"])
def test_recurrent_models_are_guided(tmp_path, architecture):
    path = write_model(tmp_path / "model.gguf", architecture)
    guidance = Guidance(2.0, NEGATIVE)
    with Model.load(path, n_ctx=512, threads=1) as model:
        assert tokens_of(run(model, guidance, "temp1")) == own_run(path, guidance, "temp1")[0]
        request = GenerationRequest.of(
            PROMPT, "temp1", max_tokens=20, seed=3, guidance=guidance, ends_at_eog=False, id=1
        )
        (answer,) = generate_many(model, [request], 1)
        assert [token.id for token in answer.tokens] == tokens_of(run(model, guidance, "temp1"))


def test_another_model_reads_the_negative_prompt(tmp_path):
    path = write_model(tmp_path / "large.gguf", "llama")
    other = write_model(tmp_path / "small.gguf", "llama", changes={"llama.rope.freq_base": 500.0})
    with Model.load(path, n_ctx=512, threads=1) as model:
        for negative_prompt in (None, NEGATIVE):
            guidance = Guidance(2.0, negative_prompt, str(other))
            expected = own_run(path, guidance, "temp1", negative_path=other)[0]
            assert tokens_of(run(model, guidance, "temp1")) == expected
            request = GenerationRequest.of(
                PROMPT, "temp1", max_tokens=20, seed=3, guidance=guidance, ends_at_eog=False
            )
            (answer,) = generate_many(model, [request], 2)
            assert [token.id for token in answer.tokens] == expected
        assert tokens_of(run(model, Guidance(2.0), "temp1")) != expected


def test_the_scale_1_changes_nothing(pruned):
    plain = run(pruned, None, "temp1", logprobs=LogprobRequest(2, "both"))
    events = run(pruned, Guidance(1.0, NEGATIVE), "temp1", logprobs=LogprobRequest(2, "both"))
    assert [event for event in events if isinstance(event, Token)] == [
        event for event in plain if isinstance(event, Token)
    ]
    assert "guidance" not in events[0].text_rules


RULES = {
    "drafts": {"lookup": 4},
    "grammar": {"constraint": GrammarSpec("regex", "regex", "( the| sea|[a-z]){3,30}")},
    "no jump": {"constraint": GrammarSpec("gbnf", "gbnf", 'root ::= " the " [a-z]+ " sea"'), "jump": False},
    "bans": {"bans": parse_bans([{"regex": "[aeo]"}]), "ban_retries": 3},
    "healing": {"heal": True},
    "echo": {"echo": True, "logprobs": LogprobRequest(0)},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_a_batch_gives_the_texts_of_single_runs(pruned, rules):
    """Requests with and without guidance share the batch."""
    guidances = [
        None,
        Guidance(1.5, NEGATIVE),
        Guidance(2.5),
        None,
        Guidance(1.5, "The sea was a"),
        Guidance(-1.0),
    ]
    requests = [
        GenerationRequest.of(
            PROMPT, "top_k60 > temp1", max_tokens=16, seed=number, guidance=guidance, id=number, **rules
        )
        for number, guidance in enumerate(guidances)
    ]
    answers = {answer.id: answer for answer in generate_many(pruned, requests, 3)}
    for request in requests:
        events = list(generate(pruned, request))
        answer = answers[request.id]
        assert [token.id for token in answer.tokens] == tokens_of(events)
        assert (answer.done.text, answer.done.finish_reason) == (events[-1].text, events[-1].finish_reason)


def test_the_prompt_that_another_model_reads_is_healed_too(pruned, pruned_model, tmp_path):
    """The other model is the same one, and reads the same prompt: nothing changes, whatever the scale is."""
    other = tmp_path / "other.gguf"
    other.write_bytes(pruned_model.read_bytes())
    prompt = "The capital of Fran"
    plain = run(pruned, None, "temp1", prompt=prompt, heal=True)
    guided = run(pruned, Guidance(4.0, model=str(other)), "temp1", prompt=prompt, heal=True)
    assert len(plain[0].prompt_ids) < len(pruned.vocabulary.tokenize_prompt(prompt.encode()))
    assert tokens_of(guided) == tokens_of(plain)


def test_the_trace_has_a_stage(pruned):
    guidance = Guidance(2.0, NEGATIVE)
    (token,) = (
        event for event in run(pruned, guidance, "min_p0.1 > dist", count=1, trace=4) if isinstance(event, Token)
    )
    assert [stage.name for stage in token.trace.stages] == ["model", "guidance", "min_p", "dist"]
    assert token.trace.stages[1].note == "scale 2"
    rows = []
    for text in (PROMPT, NEGATIVE):
        pruned.context.read(pruned.vocabulary.tokenize_prompt(text.encode()))
        rows.append(pruned.context.logits().copy())
    for candidate in token.trace.candidates:
        own, other = (row[candidate.id] for row in rows)
        assert candidate.logits[0] == own
        assert candidate.logits[1] == pytest.approx(other + 2 * (own - other), abs=1e-4)
    request = GenerationRequest.of(PROMPT, build("min_p0.1 > dist", vocab=pruned.vocabulary), guidance=guidance)
    assert trace_request(pruned, request, top=4).trace.stages == token.trace.stages
    unguided = trace_next(pruned, PROMPT, build("min_p0.1 > dist", vocab=pruned.vocabulary), top=4)
    assert [stage.name for stage in unguided.trace.stages] == ["model", "min_p", "dist"]


def test_in_a_chat_the_negative_prompt_is_the_system_message(bundled):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    events = run(
        bundled,
        Guidance(2.0, "Be rude."),
        "greedy",
        prompt=ChatMessages(messages, template),
        count=4,
        beginning=" I",
    )
    written = "system: Be rude.\nuser: Hello\nassistant: I"
    expected = run(
        bundled,
        Guidance(2.0, written),
        "greedy",
        prompt="system: Be kind.\nuser: Hello\nassistant: I",
        count=4,
    )
    assert tokens_of(events) == tokens_of(expected)


def test_infinite_logits_stay_those_of_the_model():
    row = np.array([1.0, -np.inf, 2.0, -np.inf], dtype=np.float32)
    negative = np.array([0.5, 1.0, -np.inf, -np.inf], dtype=np.float32)
    for scale in (2.0, -1.0, 0.0):
        guided = guide(row, negative, scale).guided
        assert guided.dtype == np.float32
        assert guided.tolist() == [0.5 + scale * 0.5, -np.inf, 2.0, -np.inf]


def test_both_texts_must_fit_into_the_context(small_context):
    long_text = "word " * 600
    with pytest.raises(ModelError, match=r"the negative prompt of guidance has .* and the context holds 256"):
        run(small_context, Guidance(2.0, long_text), "temp1")
    request = GenerationRequest.of(PROMPT, "temp1", max_tokens=3, guidance=Guidance(2.0, long_text))
    (failure,) = generate_many(small_context, [request], 2)
    assert "negative prompt" in str(failure.error)
    negative = "word " * 100
    length = len(small_context.vocabulary.tokenize_prompt(negative.encode()))
    events = run(small_context, Guidance(2.0, negative), "temp1", count=1000)
    assert events[-1].finish_reason == "context"
    assert len(tokens_of(events)) == 256 - length + 1
    request = GenerationRequest.of(
        PROMPT, "temp1", seed=3, guidance=Guidance(2.0, negative), ends_at_eog=False, id=1
    )
    (answer,) = generate_many(small_context, [request], 2)
    assert [token.id for token in answer.tokens] == tokens_of(events)


def test_a_model_of_another_vocabulary_is_refused(pruned, tmp_path):
    other = write_model(tmp_path / "other.gguf", "llama", "llama")
    with pytest.raises(ModelError, match=r"has another vocabulary than .*: .* tokens, not "):
        run(pruned, Guidance(2.0, model=str(other)), "temp1")


def test_an_interrupt_ends_a_guided_text(pruned):
    counts = iter(range(1000))
    chain = build("temp1", vocab=pruned.vocabulary)
    events = list(
        generate(
            pruned,
            PROMPT,
            chain,
            max_tokens=100,
            guidance=Guidance(2.0, NEGATIVE),
            is_interrupted=lambda: next(counts) > 60,
        )
    )
    assert isinstance(events[-1], Done)
    assert events[-1].finish_reason == "interrupted"
    again = tokens_of(run(pruned, Guidance(2.0, NEGATIVE), "temp1", seed=0))
    assert again[:5] == tokens_of(events)[:5] or not tokens_of(events)


def test_a_repeated_end_of_the_prompt_is_healed_in_both_readings(pruned):
    prompt = "The capital of Fra"
    healed = run(pruned, None, "temp1", prompt=prompt, heal=True)
    assert tokens_of(run(pruned, Guidance(3.0, prompt), "temp1", prompt=prompt, heal=True)) == tokens_of(healed)

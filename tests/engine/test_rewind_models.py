"""Returns in llama.cpp's memory: with attention, with a recurrent state, and with both."""

import pytest
from logitsmith.engine import GenerationRequest, LogprobRequest, Model, generate, generate_many
from logitsmith.grammars.bans import parse_bans
from logitsmith.logprobs.events import Rewind, Token
from logitsmith.samplers import build

from .small_models import write_model

BANS = [{"regex": "[a-m]"}, {"regex": "(?s)[^ ]..[0-9]"}]


@pytest.mark.parametrize("architecture", ["llama", "mamba", "jamba"])
def test_after_returns_the_logprobs_are_those_of_the_text_that_was_kept(tmp_path, architecture):
    path = write_model(tmp_path / "model.gguf", architecture)
    with Model.load(path, n_ctx=256, batch=64, threads=1) as model:
        chain = build("temp1", seed=5, vocab=model.vocabulary)
        events = list(generate(model, "The sea", chain, max_tokens=24, top_logprobs=0, bans=BANS, ban_retries=5))
        tokens = [event for event in events if isinstance(event, Token)]
        assert sum(isinstance(event, Rewind) for event in events) >= 2
        prompt = list(events[0].prompt_ids)
        read_again = [*prompt, *(token.id for token in tokens)]
        rows = list(generate(model, read_again, chain, max_tokens=0, top_logprobs=0, echo=True))[1:-1]
        for token, row in zip(tokens, rows[len(prompt) :], strict=True):
            assert token.distributions[0].logprob == pytest.approx(row.distributions[0].logprob, abs=2e-3)
        request = GenerationRequest.of(
            "The sea",
            "temp1",
            seed=5,
            max_tokens=24,
            logprobs=LogprobRequest(0),
            bans=parse_bans(BANS),
            ban_retries=5,
            id=1,
        )
        (answer,) = generate_many(model, [request], 2)
        assert [token.id for token in answer.tokens] == [token.id for token in tokens]
        assert answer.rewinds == tuple(event for event in events if isinstance(event, Rewind))
        assert answer.done.discarded_tokens == events[-1].discarded_tokens

"""Endpoints and callers that use the names of version 0.1: they work for one release, and each old name warns."""

import numpy as np
import pytest
from logitsmith import recover as package
from logitsmith.recover import (
    Endpoint,
    EndpointLimits,
    EndpointResponse,
    HttpOptions,
    OpenAIEndpoint,
    QueryKind,
    RecoverySettings,
    recover,
)

from .fakes import Fake, row_of

ROW = row_of(40)


def test_an_endpoint_with_the_old_names():
    with pytest.warns(DeprecationWarning, match="is now called") as caught:  # noqa: PT031 - the class and its object

        class OldEndpoint(Endpoint):
            vocab_size = len(ROW)
            identity = {"api": "old"}  # noqa: RUF012
            limits = EndpointLimits(2, most_biases=9, precision=1e-12, lowest=-700.0)
            has_likeliest = True
            collisions = frozenset({3})

            def __init__(self):
                self.pieces = [b"%d" % token for token in range(len(ROW))]

            def query(self, prompt, logit_bias):
                fake = Fake(ROW, 2)
                found = fake.query(prompt, logit_bias)
                return EndpointResponse(found.token, found.logprob, found.logprobs)

            def likeliest(self, prompt, logit_bias):
                return EndpointResponse(7)

        endpoint = OldEndpoint()
    messages = [str(warning.message) for warning in caught]
    for old_name in ("most_biases", "precision", "lowest", "has_likeliest", "collisions", "likeliest", "pieces"):
        assert sum(f": {old_name} is now called" in message for message in messages) == 1
    assert endpoint.limits == EndpointLimits(2, float("inf"), 9, 1e-12, -700.0)
    assert endpoint.answer("x", {}, QueryKind.TOP_TOKEN, lambda: None) == EndpointResponse(7)
    found = recover(endpoint, "x")
    assert np.flatnonzero(np.isnan(found.logprobs)).tolist() == [3]
    assert np.nanmax(np.abs(found.logprobs - ROW)) < 1e-9
    assert found.token_bytes[5] == b"5"


def test_a_result_and_settings_with_the_old_names():
    with pytest.warns(DeprecationWarning, match="eps is now called bisection_error_nats"):
        settings = RecoverySettings(eps=0.01)
    with pytest.warns(DeprecationWarning, match="n is now called top_count"):
        result = recover(Fake(ROW, 5), "x", n=8, settings=settings)
    with pytest.warns(DeprecationWarning, match="Recovery: queries is now called total_calls"):
        assert result.queries == result.total_calls > 0
    with pytest.warns(DeprecationWarning, match="complete is now called is_complete"):
        assert result.complete


def test_classes_with_the_old_names():
    with pytest.warns(DeprecationWarning, match="EndpointAnswer is now called EndpointResponse"):
        answer = package.EndpointAnswer(1, unmatched_logprobs=(-2.0,))
    with pytest.warns(DeprecationWarning, match="unnamed is now called unmatched_logprobs"):
        assert answer.unnamed == (-2.0,)
    with pytest.warns(DeprecationWarning, match="is now called") as caught:
        assert package.QuestionKind.LIKELIEST_TOKEN is QueryKind.TOP_TOKEN
    assert len(caught) == 2
    with pytest.warns(DeprecationWarning, match="is now called") as caught:
        made = OpenAIEndpoint("http://a/v1", "m", pieces=[b"a"], chat=True, options=HttpOptions(retries=0))
    assert len(caught) == 3
    assert (made.token_bytes, made.identity["kind"]) == ([b"a"], "chat")
    made.close()

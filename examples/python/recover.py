"""Recover the logprobs of the 20 most likely next tokens from calls that show five logprobs each."""

from logitsmith.engine import Model, locate
from logitsmith.recover import LocalEndpoint, recover

path, _ = locate()
with Model.load(path) as model:
    endpoint = LocalEndpoint(model, window=5)  # or LlamaServerEndpoint("http://127.0.0.1:8080")
    result = recover(endpoint, "The capital of France is", top_count=20)
    print(f"{result.total_calls} calls by {result.method}, largest error {result.max_error_nats:.1e} nats")
    # result.logprobs: float64 (V,), in nats. NaN marks tokens that were not requested; argsort puts NaN last.
    for token in (-result.logprobs).argsort()[:20]:
        print(f"{model.vocabulary.piece(int(token)).decode()!r:12} {result.logprobs[token]:.3f}")

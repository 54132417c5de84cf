"""Recover the 20 likeliest next tokens through a window that shows five."""

from logitsmith.engine import Model, locate
from logitsmith.recover import LocalEndpoint, recover

path, _ = locate()
with Model.load(path) as model:
    endpoint = LocalEndpoint(model, window=5)  # or LlamaServerEndpoint("http://127.0.0.1:8080")
    result = recover(endpoint, "The capital of France is", n=20)
    print(f"{result.queries} calls by {result.method}, largest error {result.error:.1e} nats")
    # result.logprobs: float64 (V,), nats, NaN where a token was not asked for. NaN sorts last.
    for token in (-result.logprobs).argsort()[:20]:
        print(f"{model.vocabulary.piece(int(token)).decode()!r:12} {result.logprobs[token]:.3f}")

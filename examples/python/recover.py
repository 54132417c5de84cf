"""Recover the 20 likeliest next tokens through a window that shows five."""

from logitsmith.engine import Model, locate
from logitsmith.recover import LocalEndpoint, recover

path, _ = locate()
with Model.load(path) as model:
    endpoint = LocalEndpoint(model, window=5)  # or LlamaServerEndpoint("http://127.0.0.1:8080")
    result = recover(endpoint, "The capital of France is", n=20)
    print(f"{result.queries} calls by {result.method}, largest error {result.error:.1e} nats")
    # result.logprobs: float64 (V,), NaN where a token was not asked for
    best = sorted((-logprob, token) for token, logprob in enumerate(result.logprobs) if logprob == logprob)
    for logprob, token in best[:20]:
        print(f"{model.vocabulary.piece(token).decode()!r:12} {-logprob:.3f}")

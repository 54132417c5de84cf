"""Apply a chain to logits from any source, without a model."""

import numpy as np
from logitsmith.samplers import build

chain = build([{"top_k": 40}, {"top_p": {"p": 0.95, "min_keep": 2}}, {"temperature": 0.8}, "dist"], seed=1)
logits = np.random.default_rng(0).normal(0, 3, 32_000).astype(np.float32)  # one row, one logit per token

candidates = chain.apply(logits)  # every step before the draw
print(f"{len(candidates)} candidates left, the most likely one with {candidates.probs().max():.1%}")

for _ in range(3):
    token = chain.sample(logits)  # apply, then draw
    chain.accept(token)  # penalties and other steps with a state record the token
    print(token)

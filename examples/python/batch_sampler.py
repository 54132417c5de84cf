"""Draw the next token of every row of a batch. Each row gets the token that a separate chain would draw."""

import numpy as np
from logitsmith.samplers.batch import SamplingData, SamplingParam, sample

logits = np.random.default_rng(0).normal(0, 3, (2, 49_152)).astype(np.float32)
data = SamplingData.from_numpy(
    all_input_ids=np.array([[5, 9, 2], [7, -1, -1]]),  # short rows are padded with values that are not token ids
    output_ids=np.array([[2], [-1]]),
    to_tensor=np.asarray,
)
param = SamplingParam.from_numpy(
    repetition_penalty=np.array([1.1, 1.0]),
    temperature=np.array([0.7, 1.0]),
    top_p=np.array([0.9, 0.5]),
    seed=np.array([1, 2]),
    to_tensor=np.asarray,
)
next_tokens, logprobs = sample(logits, data, param)
print(next_tokens)

"""Answer several prompts concurrently. Each answer is the one that its prompt would get alone."""

from logitsmith.engine import BatchAnswer, GenerationRequest, Model, generate_many, locate

PROMPTS = ["The capital of France is", "The sea was", "Once upon a time"]

path, _ = locate()
with Model.load(path, n_ctx=512) as model:
    requests = [
        GenerationRequest(prompt, "top-k40 > temp0.8", seed=7, max_tokens=8, id=prompt) for prompt in PROMPTS
    ]
    for result in generate_many(model, requests, parallel=3):
        text = result.done.text if isinstance(result, BatchAnswer) else f"failed: {result.error}"
        print(f"{result.id!r}: {text!r}")

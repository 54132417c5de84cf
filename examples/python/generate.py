"""Continue a prompt, and print each token with its logprob and the most likely token."""

from logitsmith.engine import Model, Token, generate, locate
from logitsmith.samplers import build

path, _ = locate()  # or the path of your own GGUF file
with Model.load(path) as model:
    chain = build("top-k40 > top-p0.95 > temp0.8", seed=7, vocab=model.vocabulary)
    for event in generate(model, "The sea was", chain, max_tokens=10, top_logprobs=2):
        if isinstance(event, Token):
            print(f"{event.text!r:14} {event.chosen.logprob:6.2f}   most likely: {event.top[0].text!r}")

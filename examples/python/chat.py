"""Run two turns of a chat. The second one decodes only new tokens, and answers as a new process would."""

from logitsmith.engine import Done, Model, Start, format_chat, generate, locate
from logitsmith.samplers import build

SYSTEM = (
    "You are a gardener of forty years, and tell people what grows where, when to sow it, and when to reap it. "
)
messages = [{"role": "system", "content": SYSTEM * 5}]

path, _ = locate()
with Model.load(path, n_ctx=512) as model:
    for question in ("When do I sow peas?", "And beans?"):
        messages.append({"role": "user", "content": question})
        chain = build("top-k40 > temp0.7", seed=7, vocab=model.vocabulary)
        for event in generate(model, format_chat(model, messages), chain, max_tokens=12, exact_reuse=True):
            if isinstance(event, Start):
                print(f"{event.cached_tokens} of {event.prompt_tokens} tokens were in the context already")
            elif isinstance(event, Done):
                messages.append({"role": "assistant", "content": event.text})
                print(event.text)

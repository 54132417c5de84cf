"""Requests that join while others run, and one that leaves before its end."""

from logitsmith.engine import BatchEngine, Done, GenerationRequest, Model, Token, locate

path, _ = locate()
with Model.load(path, n_ctx=256, threads=2) as model, BatchEngine(model, slots=4) as engine:
    engine.add(GenerationRequest("The sea was", "top-k40 > temp0.8", seed=7, max_tokens=12, id="sea"))
    engine.add(GenerationRequest("The long story of", "temp1", seed=7, max_tokens=200, id="story"))
    for step in range(12):
        for name, event in engine.step():
            if isinstance(event, Token):
                print(f"{name}: {event.text!r}")
            elif isinstance(event, Done):
                print(f"{name} ended: {event.finish_reason}")
        if step == 3:
            engine.add(GenerationRequest("Salt is", "greedy", max_tokens=3, id="salt"))
            engine.cancel("story")

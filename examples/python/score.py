"""Score a text token by token, and compare continuations of a prompt."""

from logitsmith.engine import Model, locate, score, score_choices, tokenize_continuation
from logitsmith.logprobs import Score, choice_scores

path, _ = locate()
with Model.load(path) as model:
    ids = model.vocabulary.tokenize_prompt(b"The sea was calm.")
    tokens = list(score(model, ids))
    for token in tokens:
        print(f"{token.text!r:10} {token.chosen.logprob}")
    print(f"perplexity {Score.of(tokens).perplexity:.1f}")

    prompt, choices = "The capital of France is", [" Paris", " London"]
    cut = [tokenize_continuation(model.vocabulary, prompt, choice) for choice in choices]
    scored = score_choices(model, cut[0][0], [choice_ids for _, choice_ids, _ in cut])
    for record in choice_scores(list(zip(choices, scored, strict=True))):
        print(f"{record['text']!r}: {record['probability']:.1%}")

"""The routes of clients, each with a short body, for what is the same on all of them."""

PROMPT = {"prompt": "The sea", "max_tokens": 2}
QUESTION = {"role": "user", "content": "Hi"}
CHAT = {"messages": [QUESTION], "max_tokens": 2}
INPUT = {"input": "Hi", "max_tokens": 2}
TEXT_ROUTES = {
    "/v1/completions": PROMPT,
    "/v1/chat/completions": CHAT,
    "/v1/responses": INPUT,
    "/completion": PROMPT,
    "/api/v1/generate": PROMPT,
}
"""A route of each kind that writes."""
OTHER_PATHS = {
    "/chat/completions": CHAT,
    "/responses": INPUT,
    "/completions": PROMPT,
    "/api/latest/generate": PROMPT,
}
"""Further paths of these routes."""
TOKENIZER_ROUTES = {
    "/tokenize": {"content": "a"},
    "/v1/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    "/v1/internal/encode": {"text": "a"},
    "/v1/internal/decode": {"tokens": [1]},
    "/v1/internal/token-count": {"text": "a"},
    "/v1/token/encode": {"text": "a"},
    "/v1/token/decode": {"tokens": [1]},
    "/api/extra/tokencount": {"prompt": "a"},
    "/api/extra/detokenize": {"ids": [1]},
    "/apply-template": {"messages": [QUESTION]},
}
DECISION = {"input": "Hi", "questions": [{"type": "predicate", "instructions": "It is a greeting."}]}
OWN_ROUTES = {
    "/gen/next": {"prompt": "The sea"},
    "/gen/generate": PROMPT,
    "/gen/context": {"prompt": "The sea", "memory": "Blue."},
    "/gen/export": {"text": "The sea"},
    "/gen/chain": {"chain": "min-p0.1"},
    "/gen/grammars/check": {"grammar": "json_object"},
    "/gen/presets/import": {"text": "chain: [dist]"},
}
OTHER_ROUTES = OTHER_PATHS | TOKENIZER_ROUTES | {"/v1/decisions": DECISION}
ROUTES = TEXT_ROUTES | OTHER_ROUTES | OWN_ROUTES

"""Two APIs that show few logprobs, for the invocations of `gen recover`: pure functions of the request.

A URL begins with the habit of the API: ``/window`` shows logprobs with the biases added, ``/raw`` without (biases
only choose), ``/deaf`` ignores biases, ``/refuse`` and ``/broken`` answer with an error, ``/other`` with JSON of
another shape.
"""

import json
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import exp, log
from random import Random
from threading import Thread

SIZE = 120
DIMENSIONS = 4


def _matrix():
    random = Random(1)
    return [[random.gauss(0, 1.5) for _ in range(DIMENSIONS)] for _ in range(SIZE)]


MATRIX = _matrix()


def logits_of(prompt):
    """The logits behind a prompt: a matrix of few dimensions times a vector that the prompt's digest seeds."""
    random = Random(int.from_bytes(sha256(prompt.encode()).digest()[:8], "big"))
    vector = [random.gauss(0, 1) for _ in range(DIMENSIONS)]
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in MATRIX]


def log_softmax(logits):
    most = max(logits)
    total = log(sum(exp(value - most) for value in logits))
    return [value - most - total for value in logits]


def choose(habit, prompt, biases):
    """The token that is chosen, and the logprobs that are shown."""
    logits = logits_of(prompt)
    biased = list(logits)
    for token, bias in biases:
        biased[int(token)] += 0 if habit == "deaf" else bias
    return biased.index(max(biased)), log_softmax(logits if habit == "raw" else biased)


def top_token(logprobs, count):
    return sorted(range(SIZE), key=lambda token: -logprobs[token])[:count]


def answer_llama_server(habit, path, body):
    """The answer of llama.cpp's server."""
    if path == "v1/models":
        return {"data": [{"id": "fake", "meta": {"n_vocab": SIZE}}]}
    if path == "tokenize":
        return {"tokens": list(range(len(body["content"].split())))}
    token, logprobs = choose(habit, body["prompt"], body["logit_bias"])
    if not body["n_probs"]:
        return {"tokens": [token]}
    value, name = (exp, "prob") if body["post_sampling_probs"] else (float, "logprob")
    shown = [
        {"id": i, "bytes": list(f" t{i}".encode()), name: value(logprobs[i])}
        for i in top_token(logprobs, body["n_probs"])
    ]
    step = {"id": token, name: value(logprobs[token]), "top_probs" if name == "prob" else "top_logprobs": shown}
    return {"completion_probabilities": [step]}


def answer_openai(habit, path, body):
    """The answer of OpenAI's completions or chat completions."""
    chat = path == "v1/chat/completions"
    prompt = body["messages"][0]["content"] if chat else body["prompt"]
    token, logprobs = choose(habit, prompt, body.get("logit_bias", {}).items())
    count = (body.get("top_logprobs") if chat else body.get("logprobs")) or 0
    shown = {f" t{i}": logprobs[i] for i in top_token(logprobs, count)}
    if not chat:
        own = {"tokens": [f" t{token}"], "token_logprobs": [logprobs[token]], "top_logprobs": [shown]}
        return {"choices": [{"text": f" t{token}", "logprobs": own if count else None}]}
    top = [{"token": text, "bytes": list(text.encode()), "logprob": value} for text, value in shown.items()]
    own = {"token": f" t{token}", "bytes": list(f" t{token}".encode()), "logprob": logprobs[token]}
    content = {"content": [{**own, "top_logprobs": top}]}
    return {"choices": [{"message": {"content": f" t{token}"}, "logprobs": content if count else None}]}


def answer(path, body):
    """Status and body of the answer."""
    habit, _, rest = path.strip("/").partition("/")
    if habit == "refuse":
        return 401, {"error": {"message": "no such key"}}
    if habit == "broken":
        return 500, {"error": {"message": "no memory"}}
    if habit == "other":
        return 200, {"hello": "world"}
    if rest.endswith("completions"):
        return 200, answer_openai(habit, rest, body)
    return 200, answer_llama_server(habit, rest, body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is a second write, which would wait 40 ms for an answer

    def do_POST(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, body = answer(self.path, json.loads(data) if data else None)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


@contextmanager
def serve():
    """Serve the APIs; gives the address."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()

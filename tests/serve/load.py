"""Many clients at a time: random requests for every family of routes, and a client that may leave at any moment.

Each request is also written as a line for `gen batch`, so that its answer can be compared.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .gen_serve import SECONDS_TO_WAIT

WORDS = (
    *("the", "sea", "was", "calm", "and", "a", "man", "in", "small", "boat", "looked", "at", "stars"),
    *("Once", "upon", "time", "there", "lived", "an", "old", "king", "7", "3.5", "of", "…", "été", "🌊"),
)
BEGINNINGS = tuple(" ".join(random.Random(count).choices(WORDS, k=count)) for count in (70, 120, 240))
"""Common beginnings of prompts, longer than the part that slots copy from each other."""

CHAINS = (
    "dist",
    "greedy",
    "top-k40 > top-p0.95 > temp0.8",
    "temp1.5 > min-p0.05",
    "penalties(repeat=1.3, last_n=32) > top-k20 > temp0.7",
    "dry(multiplier=0.8, allowed_length=2) > xtc(probability=0.5, threshold=0.05) > temp1.2",
    "temp0.9 > mirostat_v2",
    'ban=["the"] > top-k100 > temp1.1',
)
GRAMMARS = (
    {"regex": "[a-z]{3,12}( [a-z]{2,8}){0,4}\\."},
    {"gbnf": 'root ::= "answer: " ("yes" | "no, " [a-z]+) "\\n"'},
    {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
    {"lark": 'start: "<" /[0-9]+/ ">"'},
)


@dataclass
class LoadRequest:
    """A request, and what its client does.

    Attributes:
        path: the route.
        body: the fields.
        lines: the line of `gen batch` for each text of the answer; none if there is nothing to compare.
        status: the status of the answer.
        leaves_after: number of parts of the stream after which the client leaves; 0: before the answer; None: it
            stays.
        keeps_connection: whether the client sends its next request on the same connection.
    """

    path: str
    body: dict | bytes | None
    lines: list[dict] = field(default_factory=list)
    status: int = 200
    leaves_after: int | None = None
    keeps_connection: bool = True

    @property
    def data(self):
        """The bytes of the request."""
        method = "GET" if self.body is None else "POST"
        body = b"" if self.body is None else self.body if isinstance(self.body, bytes) else encode(self.body)
        head = f"{method} {self.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        if not self.keeps_connection:
            head += "connection: close\r\n"
        return head.encode() + b"\r\n" + body


def encode(body):
    return json.dumps(body).encode()


class RequestMaker:
    """Makes random requests.

    Args:
        seed: the same seed makes the same requests.
        max_tokens: maximum number of tokens of a text.
        leaving_share: share of the clients that leave early.
        beginnings: common beginnings of prompts.
    """

    def __init__(self, seed, max_tokens, leaving_share, beginnings=()):
        self._random, self._beginnings = random.Random(seed), beginnings
        self._max_tokens, self._leaving_share = max_tokens, leaving_share
        self._families = (self._openai, self._chat, self._llama_server, self._kobold)

    def make(self, number):
        """Return a request. ``number``: part of the ids of its lines."""
        choose = self._random
        family = choose.choice(self._families)
        line = {
            "prompt": self._prompt(),
            "seed": choose.randrange(1 << 32),
            "max_tokens": choose.choice((1, 2, choose.randint(1, self._max_tokens), self._max_tokens)),
            "chain": choose.choice(CHAINS),
        }
        if choose.random() < 0.2:
            line["grammar"] = choose.choice(GRAMMARS)
        if choose.random() < 0.3:
            line["stop"] = choose.sample([" the", ".", "\n", "er", " man in"], 2)
        line["logprobs"] = choose.choice((0, 0, 1, 4))
        count = choose.choice((1, 1, 1, 2, 3))
        request = family(line, count, choose.random() < 0.5)
        request.keeps_connection = choose.random() < 0.8
        if choose.random() < self._leaving_share:
            request.leaves_after = choose.choice((0, 0, 1, choose.randint(1, self._max_tokens)))
        for index, compared in enumerate(request.lines):
            compared["id"] = f"{number}.{index}"
        return request

    def _prompt(self):
        words = self._random.choices(WORDS, k=self._random.randint(1, 12))
        beginning = self._random.choice(("", "", *self._beginnings))
        return f"{beginning} {' '.join(words)}".strip()

    def _openai(self, line, count, is_stream):
        body = {key: line[key] for key in ("prompt", "seed", "max_tokens", "chain", "stop") if key in line}
        body |= {"stream": is_stream, "n": count, "logprobs": line["logprobs"]}
        if "grammar" in line:
            body["grammar"] = line["grammar"]
        if not is_stream and self._random.random() < 0.3:
            body["echo"] = True
        return LoadRequest("/v1/completions", body, choices(line, count))

    def _chat(self, line, count, is_stream):
        messages = [{"role": "user", "content": line.pop("prompt")}]
        line["messages"] = messages
        body = {key: line[key] for key in ("messages", "seed", "max_tokens", "chain", "stop") if key in line}
        body |= {"stream": is_stream, "n": count, "logprobs": True, "top_logprobs": line["logprobs"]}
        if "grammar" in line:
            body["grammar"] = line["grammar"]
        return LoadRequest("/v1/chat/completions", body, choices(line, count))

    def _llama_server(self, line, _count, is_stream):
        body = {key: line[key] for key in ("prompt", "seed", "chain", "stop") if key in line}
        body |= {"stream": is_stream, "n_predict": line["max_tokens"], "n_probs": line["logprobs"]}
        body["return_tokens"] = True
        if "grammar" in line:
            body["grammar"] = line["grammar"]
        return LoadRequest("/completion", body, choices(line, 1))

    def _kobold(self, line, _count, is_stream):
        body = {key: line[key] for key in ("prompt", "chain") if key in line}
        body |= {"sampler_seed": line["seed"], "max_length": line["max_tokens"], "logprobs": line["logprobs"]}
        body |= {"stop_sequence": line.get("stop", []), "genkey": f"K{self._random.randrange(40)}"}
        if "grammar" in line:
            body["grammar"] = line["grammar"]
        path = "/api/extra/generate/stream" if is_stream else "/api/v1/generate"
        return LoadRequest(path, body, choices(line, 1))


def choices(line, count):
    """Return a line for each text of an answer: text i has the seed plus i."""
    return [line | {"seed": (line["seed"] + index) % (1 << 32)} for index in range(count)]


@dataclass
class Answer:
    """One text of an answer, in no format of an API.

    Attributes:
        text: the text without the prompt.
        reason: why it ended, as OpenAI says it.
        logprobs: the logprob of each token of the text.
        exactness: how far other requests can change it.
        ids: the ids of the tokens; None if the format does not show them.
    """

    text: str = ""
    reason: str | None = None
    logprobs: list = field(default_factory=list)
    exactness: str = ""
    ids: list | None = None


def read_answers(request, content):
    """Return the texts of an answer, whole or streamed. ``content``: the body of the answer."""
    texts = [Answer() for _ in request.lines]
    if b"data: " not in content[:40]:
        records = [json.loads(content)]
    else:
        parts = content.decode().split("\n\n")
        events = [part.partition("data: ")[2] for part in parts]
        records = [json.loads(event) for event in events if event not in ("", "[DONE]")]
    for record in records:
        _READERS[request.path](texts, record, request)
    return texts


def _read_openai(texts, record, request):
    for choice in record["choices"]:
        answer = texts[choice["index"]]
        message = choice.get("message") or choice.get("delta") or {}
        answer.text += choice.get("text") or message.get("content") or ""
        if choice["logprobs"] is not None:
            answer.logprobs += [token["logprob"] for token in choice["logprobs"]["content"]]
        answer.reason = choice["finish_reason"] or answer.reason
        if "x_gen" in record:
            answer.exactness = record["x_gen"]["exactness"]
    if request.body.get("echo"):
        (prompt,) = record["prompt"]
        for answer in texts:
            assert answer.text.startswith(prompt["text"])
            answer.text = answer.text.removeprefix(prompt["text"])
            del answer.logprobs[: len(prompt["logprobs"]["tokens"])]


_STOP_TYPES = {"limit": "length", "eos": "stop", "word": "stop"}


def _read_llama_server(texts, record, _request):
    (answer,) = texts
    answer.text += record["content"]
    if record["stop"]:
        answer.reason = _STOP_TYPES[record["stop_type"]]
        answer.exactness = record["x_gen"]["exactness"]
    if record["tokens"]:
        answer.ids = (answer.ids or []) + record["tokens"]
    answer.logprobs += [token["logprob"] for token in record.get("completion_probabilities", ())]


def _read_kobold(texts, record, _request):
    (answer,) = texts
    for result in record.get("results", ()):
        answer.text = result["text"]
        answer.reason = result["finish_reason"]
        answer.logprobs = result["logprobs"]["token_logprobs"]
    if "token" in record:
        answer.text += record["token"]
        answer.reason = record["finish_reason"] or answer.reason
        answer.logprobs += [record["logprob"]] if "logprob" in record else []
    if "x_gen" in record:
        answer.exactness = record["x_gen"]["exactness"]


_READERS = {
    "/v1/completions": _read_openai,
    "/v1/chat/completions": _read_openai,
    "/completion": _read_llama_server,
    "/api/v1/generate": _read_kobold,
    "/api/extra/generate/stream": _read_kobold,
}


class LeftError(Exception):
    """The client has left."""


class LoadClient:
    """Sends requests one after the other, on one connection or several."""

    def __init__(self, port):
        self._port = port
        self._reader = self._writer = None

    async def send(self, request):
        """Return the status and the body of the answer. Raises ``LeftError``."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(request.data)
        await self._writer.drain()
        if request.leaves_after == 0:
            await asyncio.sleep(random.Random(len(request.data)).random() * 0.05)
            await self.close()
            raise LeftError
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if b"transfer-encoding: chunked" in head:
            content = await self._read_chunks(request.leaves_after)
        else:
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            content = await self._reader.readexactly(int(length))
        if b"connection: close" in head or not request.keeps_connection:
            await self.close()
        return status, content

    async def _read_chunks(self, leaves_after):
        content, count = [], 0
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            content.append((await self._reader.readexactly(size + 2))[:-2])
            count += 1
            if count == leaves_after:
                await self.close()
                raise LeftError
        await self._reader.readexactly(2)
        return b"".join(content)

    async def close(self):
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
            self._reader = self._writer = None


async def send_all(port, requests, client_count):
    """Send requests by several clients at a time.

    Returns the numbers of finished and left requests, and the status and the body of each finished answer.
    """
    waiting = iter(requests)
    counts, answers = Counter(), {}

    async def work():
        client = LoadClient(port)
        for request in waiting:
            try:
                async with asyncio.timeout(SECONDS_TO_WAIT):
                    answers[id(request)] = await client.send(request)
                counts["finished"] += 1
            except LeftError:
                counts["left"] += 1
            except BaseException:
                await client.close()
                raise
        await client.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(client_count):
            group.create_task(work())
    return counts, [(request, *answers[id(request)]) for request in requests if id(request) in answers]


@dataclass(frozen=True)
class ProcessUse:
    """The resources that a process uses.

    Attributes:
        memory: resident memory, bytes.
        threads: number of threads.
        files: number of open files and sockets.
    """

    memory: int
    threads: int
    files: int

    @classmethod
    def of(cls, pid):
        """Return what a process uses now."""
        folder = Path("/proc") / str(pid)
        memory = int(re.search(r"VmRSS:\s*(\d+) kB", (folder / "status").read_text())[1]) * 1024
        return cls(memory, *(len(list((folder / name).iterdir())) for name in ("task", "fd")))

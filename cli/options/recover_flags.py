"""The flags of `gen recover` and `gen recover-basis`, with their help."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .flags import option


class Api(str, Enum):
    """Which API an endpoint has."""

    llama_server = "llama-server"
    openai = "openai"


class Method(str, Enum):
    """How logprobs are recovered."""

    auto = "auto"
    single = "single"
    parallel = "parallel"
    top_n = "top_n"
    bisection = "bisection"
    forced = "forced"
    basis = "basis"


_ENDPOINT, _WHAT, _CALLS, _OUT = "Endpoint (or a model, -m)", "What to recover, and how", "Calls", "Output"

RecoverPrompt = Annotated[
    str | None, typer.Argument(metavar="PROMPT", help="The text whose next token is asked about.")
]
EndpointUrl = Annotated[
    str | None,
    option(_ENDPOINT, "--endpoint", metavar="URL", help="Where the API is; an OpenAI one ends in /v1."),
]
ApiOption = Annotated[Api | None, option(_ENDPOINT, "--api", help="llama-server or openai.")]
ApiModel = Annotated[str | None, option(_ENDPOINT, "--api-model", metavar="NAME", help="The model's name there.")]
ApiChat = Annotated[bool, option(_ENDPOINT, "--api-chat", help="OpenAI's chat completions, not completions.")]
Tokenizer = Annotated[
    Path | None,
    option(_ENDPOINT, "--tokenizer", metavar="FILE", help="A .gguf or .tiktoken; OpenAI's API names texts only."),
]
KeyEnv = Annotated[
    str | None,
    option(_ENDPOINT, "--key-env", metavar="NAME", help="Variable that holds the key. [OPENAI_API_KEY]"),
]
Window = Annotated[
    int | None,
    option(_ENDPOINT, "--window", help="Logprobs that a call shows; 0 = only the token. [20; completions, -m: 5]"),
]
PreSampling = Annotated[
    bool, option(_ENDPOINT, "--pre-sampling", help="llama-server: logprobs from before the biases (for study).")
]
ServerSlot = Annotated[
    int | None, option(_ENDPOINT, "--slot", help="llama-server: ask this slot; -1 = any, answers may differ. [0]")
]
VocabSize = Annotated[
    int | None, option(_ENDPOINT, "--vocab-size", help="llama-server: tokens, if it does not say. [asked]")
]

MethodOption = Annotated[
    Method,
    option(_WHAT, "--method", help="auto finds out what works, and takes the cheapest. [auto]", metavar="METHOD"),
]
Top = Annotated[int | None, option(_WHAT, "--top", metavar="N", help="Only the N likeliest tokens.")]
Ids = Annotated[str | None, option(_WHAT, "--ids", metavar="ID,ID,…", help="Only these tokens.")]
BasisFile = Annotated[
    Path | None, option(_WHAT, "--basis", metavar="FILE", help="What gen recover-basis made of the same model.")
]
Eps = Annotated[float, option(_WHAT, "--eps", help="Where bisection stops, nats. [0.001]")]
Tolerance = Annotated[
    float, option(_WHAT, "--tolerance", help="Error on held-out tokens up to which a basis is believed. [0.01]")
]
Repeats = Annotated[
    int | None, option(_WHAT, "--repeats", help="Ask so often, and average. [1; 4 if answers differ]")
]

InFlight = Annotated[int, option(_CALLS, "--in-flight", help="Calls at once. [1]")]
Rate = Annotated[float | None, option(_CALLS, "--rate", help="Calls a second, at most.")]
Timeout = Annotated[float, option(_CALLS, "--timeout", help="Seconds for an answer to be whole. [60]")]
Retries = Annotated[int, option(_CALLS, "--retries", help="New tries after 429, 5xx, a broken connection. [8]")]
MaxCalls = Annotated[
    int | None, option(_CALLS, "--max-calls", help="Stop after so many answered calls, those of --verify too.")
]
DryRun = Annotated[bool, option(_CALLS, "--dry-run", help="Print calls, tokens and cost; ask for no token.")]
Price = Annotated[
    str | None,
    option(_CALLS, "--price", metavar="IN[,OUT]", help="Dollars for a million tokens read, and written."),
]

Output = Annotated[
    Path | None,
    option(_OUT, "-o", "--output", metavar="FILE", help=".npz, .json or .jsonl; - prints JSONL. [a table]"),
]
Checkpoint = Annotated[
    Path | None, option(_OUT, "--checkpoint", metavar="FILE", help="Keeps each answer. [FILE.checkpoint]")
]
Resume = Annotated[bool, option(_OUT, "--resume", help="Go on with the checkpoint, and repeat no call.")]
Verify = Annotated[
    int | None, option(_OUT, "--verify", metavar="N", help="Ask for N random tokens again, one by one.")
]

BasisOutput = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Where the basis goes, an .npz.")
]
BasisRows = Annotated[
    int | None,
    typer.Option(
        "--rows", metavar="N", help="Make it of N whole rows of the model, not of its matrix; 0 = enough."
    ),
]
BasisVectors = Annotated[
    list[Path] | None,
    typer.Option("--vectors", metavar="FILE.npz", help="Make it of whole recoveries; repeat for each."),
]

"""The flags of the commands, with their help; named as llama.cpp names them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer


class Format(str, Enum):
    """How events are written."""

    text = "text"
    jsonl = "jsonl"
    openai = "openai"
    openai_chat = "openai-chat"
    together = "together"
    llama_server = "llama-server"


class Source(str, Enum):
    """Which distribution logprobs are of."""

    model = "model"
    chain = "chain"
    both = "both"


class OneSource(str, Enum):
    """One of two distributions."""

    model = "model"
    chain = "chain"


class ScoreFormat(str, Enum):
    """How scores are written."""

    table = "table"
    json = "json"
    jsonl = "jsonl"


class BatchFormat(str, Enum):
    """How the results of a batch are written."""

    openai = "openai"
    jsonl = "jsonl"


def option(panel: str, *names: str, **rest: Any) -> Any:
    """An option of a command, in a panel of its help; a default stands in the help, in brackets."""
    rest["help"] = rest["help"].replace("[", r"\[")  # a default in brackets is no markup
    return typer.Option(*names, rich_help_panel=panel, show_default=False, **rest)


def _prompt(*names: str, **rest: Any) -> Any:
    return option("Prompt", *names, **rest)


def _sampling(*names: str, **rest: Any) -> Any:
    return option("Sampling", *names, **rest)


def _more(*names: str, **rest: Any) -> Any:
    return option("More samplers (all of them: gen samplers)", *names, **rest)


def _grammar(*names: str, **rest: Any) -> Any:
    return option("Grammar (one of the first six)", *names, **rest)


def _length(*names: str, **rest: Any) -> Any:
    return option("Length", *names, **rest)


def _score(*names: str, **rest: Any) -> Any:
    return option("Scoring", *names, **rest)


def _batch(*names: str, **rest: Any) -> Any:
    return option("Batch", *names, **rest)


def _model(*names: str, **rest: Any) -> Any:
    return option("Model", *names, **rest)


def _output(*names: str, **rest: Any) -> Any:
    return option("Output", *names, **rest)


Prompt = Annotated[str | None, typer.Argument(metavar="PROMPT", help="The text to write on from.")]
PromptOption = Annotated[str | None, _prompt("-p", "--prompt", help="The prompt, as an option.")]
File = Annotated[Path | None, _prompt("-f", "--file", help="Read the prompt from a file; - is stdin.")]
Chat = Annotated[bool | None, _prompt("--chat/--no-chat", help="Put the prompt into the model's chat template.")]
System = Annotated[str | None, _prompt("--system", "-sys", help="System message; implies --chat.")]
Echo = Annotated[bool, _prompt("--echo", help="Write the prompt too; in JSON, its tokens with their logprobs.")]

Preset = Annotated[
    str | None, _sampling("-P", "--preset", help="A preset's name or file; 'model': the GGUF author's own.")
]
ChainText = Annotated[
    str | None, _sampling("--chain", metavar="STEPS", help="Steps in order: 'top-k40 > top-p0.9 > temp0.8'.")
]
Set = Annotated[
    list[str] | None, _sampling("--set", metavar="NAME.PARAM=VALUE", help="Set one parameter; repeatable.")
]
Seed = Annotated[int | None, _sampling("-s", "--seed", help="Same seed, same text; -1 picks one. [-1]")]
Temp = Annotated[float | None, _sampling("--temp", help="Temperature; 0 = the most likely token.")]
TopK = Annotated[int | None, _sampling("--top-k", help="Keep the k most likely tokens; 0 = off.")]
TopP = Annotated[float | None, _sampling("--top-p", help="Keep the likeliest tokens up to this mass; 1 = off.")]
MinP = Annotated[float | None, _sampling("--min-p", help="Keep tokens at least this likely beside the best.")]
RepeatPenalty = Annotated[float | None, _sampling("--repeat-penalty", help="Penalty on past tokens; 1 = off.")]
RepeatLastN = Annotated[int | None, _sampling("--repeat-last-n", help="How far back it looks; -1 = all.")]
PresencePenalty = Annotated[float | None, _sampling("--presence-penalty", help="Once for a past token; 0 = off.")]
FrequencyPenalty = Annotated[
    float | None, _sampling("--frequency-penalty", help="For each time it came; 0 = off.")
]
LogitBias = Annotated[
    list[str] | None,
    _sampling("-l", "--logit-bias", metavar="TOKEN=BIAS", help="ID+1, ID-1, ID=-inf or TEXT=2; repeatable."),
]
IgnoreEos = Annotated[bool, _sampling("--ignore-eos", help="Never end by an end-of-generation token.")]

Typical = Annotated[
    float | None, _more("--typical", help="Keep the tokens about as surprising as expected; 1 = off.")
]
TopNSigma = Annotated[
    float | None,
    _more("--top-n-sigma", "--top-nsigma", help="Keep logits within n deviations of the best; 0 = off."),
]
XtcProbability = Annotated[float | None, _more("--xtc-probability", help="How often the top choices go; 0 = off.")]
XtcThreshold = Annotated[float | None, _more("--xtc-threshold", help="What counts as a top choice. [0.1]")]
DynatempRange = Annotated[
    float | None, _more("--dynatemp-range", help="Temperature by entropy, this far up and down.")
]
DynatempExp = Annotated[float | None, _more("--dynatemp-exp", help="Its exponent. [1]")]
DryMultiplier = Annotated[float | None, _more("--dry-multiplier", help="Against loops; 0 = off, 0.8 is usual.")]
DryBase = Annotated[float | None, _more("--dry-base", help="Growth for each repeated token. [1.75]")]
DryAllowedLength = Annotated[int | None, _more("--dry-allowed-length", help="Repetitions up to this go free. [2]")]
DryPenaltyLastN = Annotated[
    int | None, _more("--dry-penalty-last-n", help="How far back it looks; -1 = all. [-1]")
]
DrySequenceBreaker = Annotated[
    list[str] | None,
    _more(
        "--dry-sequence-breaker", metavar="TEXT", help="Instead of newline : \" and *; 'none' clears; repeatable."
    ),
]
Mirostat = Annotated[
    int | None,
    _more("--mirostat", min=0, max=2, help="1 or 2 selects; only bias and temperature stay before it. 0 = off."),
]
MirostatLr = Annotated[float | None, _more("--mirostat-lr", help="How fast it learns, eta. [0.1]")]
MirostatEnt = Annotated[float | None, _more("--mirostat-ent", help="The surprise in bits, tau. [5]")]
AdaptiveTarget = Annotated[
    float | None,
    _more("--adaptive-target", help="Select by adaptive_p, near this probability; below 0 = plainly."),
]
AdaptiveDecay = Annotated[float | None, _more("--adaptive-decay", help="How long it remembers. [0.9]")]
Samplers = Annotated[
    str | None,
    _more(
        "--samplers",
        "--sampler-seq",
        metavar="A;B;C",
        help="These only, in this order: 'top_k;top_p;temperature' or 'kpt'.",
    ),
]

Grammar = Annotated[
    str | None, _grammar("--grammar", metavar="NAME|GBNF", help="A grammar's name (gen grammars), or GBNF itself.")
]
GrammarFile = Annotated[Path | None, _grammar("--grammar-file", help="A GBNF file.")]
JsonSchema = Annotated[str | None, _grammar("-j", "--json-schema", help="JSON that fits this JSON Schema.")]
JsonSchemaFile = Annotated[Path | None, _grammar("-jf", "--json-schema-file", help="The same, from a file.")]
Regex = Annotated[str | None, _grammar("--regex", help="Text that matches as a whole.")]
LarkFile = Annotated[Path | None, _grammar("--lark-file", help="A grammar in llguidance's Lark.")]
GrammarRoot = Annotated[str | None, _grammar("--grammar-root", metavar="RULE", help="GBNF's first rule. [root]")]
GrammarAfter = Annotated[
    str | None, _grammar("--grammar-after", metavar="TEXT", help="Free until this was written, then the grammar.")
]
GrammarComplete = Annotated[
    bool, _grammar("--grammar-complete", help="Close the sentence also where -n breaks it off.")
]
NoJump = Annotated[bool, _grammar("--no-jump", help="Draw also the tokens that the grammar forces.")]

MaxTokens = Annotated[
    int | None,
    _length(
        "-n",
        "--predict",
        "--n-predict",
        help="Tokens to write at most; -1 = no limit. [256, then a grammar's sentence is closed]",
    ),
]
Lookup = Annotated[
    int, _length("--lookup", metavar="N", min=0, help="Guess up to N tokens from the text so far; 0 = off. [0]")
]
Stop = Annotated[list[str] | None, _length("--stop", "-r", help="End before this text; repeatable.")]

ModelPath = Annotated[
    Path | None, _model("-m", "--model", help="GGUF file. [$GEN_MODEL, the config, the bundled model]")
]
ContextSize = Annotated[int | None, _model("-c", "--ctx-size", help="Context in tokens; 0 = the model's. [4096]")]
Threads = Annotated[int | None, _model("-t", "--threads", help="CPU threads. [the physical cores]")]
GpuLayers = Annotated[
    int, _model("-ngl", "--gpu-layers", "--n-gpu-layers", help="Layers on the GPU; -1 = all. [0]")
]
BatchSize = Annotated[int, _model("-b", "--batch-size", help="Prompt tokens at a time. [512]")]
Lora = Annotated[list[str] | None, _model("--lora", metavar="FILE[=SCALE]", help="LoRA adapter; repeatable.")]
NoMmap = Annotated[bool, _model("--no-mmap", help="Read the whole file instead of mapping it.")]
Mlock = Annotated[bool, _model("--mlock", help="Keep the model in RAM.")]

FormatOption = Annotated[
    Format,
    _output(
        "--format",
        metavar="FORMAT",
        help="text; jsonl: one event a line; openai, openai-chat, together, llama-server: one JSON object. [text]",
    ),
]
Stream = Annotated[
    bool, _output("--stream", help="With openai, openai-chat: server-sent chunks, as they are made.")
]
Logprobs = Annotated[
    int | None,
    _output(
        "--logprobs", metavar="N", help="Logprobs, with the N likeliest tokens; -1 = all, in jsonl. [jsonl: 0]"
    ),
]
LogprobsFrom = Annotated[
    Source | None,
    _output(
        "--logprobs-from",
        help="model: as the model has them; chain: as they were drawn from; both, in jsonl. [model]",
    ),
]
LogprobOf = Annotated[
    str | None,
    _output(
        "--logprob-of", metavar="TEXTS", help="These tokens' logprobs at every step, in jsonl: 'yes, \" no\"'."
    ),
]
Stats = Annotated[bool, _output("--stats", help="Speed and counts, on stderr, at the end.")]
ShowConfig = Annotated[bool, _output("--show-config", help="Print the settings, where each is from, and stop.")]
Verbose = Annotated[bool, _output("-v", "--verbose", help="llama.cpp's own log, on stderr.")]

ScoreText = Annotated[
    str | None, typer.Argument(metavar="TEXT", help="The text to score; with --choices, the prompt.")
]
ScoreFile = Annotated[Path | None, _score("-f", "--file", help="Read the text from a file; - is stdin.")]
Choices = Annotated[
    list[str] | None,
    _score("--choices", "--choice", metavar="TEXT", help="Score this behind the prompt; repeatable."),
]
ScoreLines = Annotated[
    Path | None,
    _score("--jsonl", help='A file of {"prompt", "choices"} or {"text"}, one a line; - is stdin. Prints JSONL.'),
]
Stride = Annotated[
    int | None,
    _score("--stride", help="Tokens from window to window, if the text exceeds the context. [half of it]"),
]
ScoreTokens = Annotated[bool, _score("--tokens", help="Also each token, in the table.")]
ScoreFormatOption = Annotated[ScoreFormat | None, _score("--format", help="table, json, or jsonl. [table]")]

StreamFile = Annotated[
    Path | None, typer.Argument(metavar="RUN.JSONL", help="What gen --format jsonl wrote. [stdin]")
]
Alternatives = Annotated[
    int | None, typer.Option("--top", min=0, help="A table of the tokens, with this many alternatives each.")
]
InspectFrom = Annotated[
    OneSource | None, typer.Option("--logprobs-from", help="Which distribution, if the run has both. [model]")
]

Requests = Annotated[
    Path, typer.Argument(metavar="REQUESTS", help="A file of requests, one a line, or CSV; - is stdin.")
]
Output = Annotated[Path, _batch("-o", "--output", help="Where results go, as they are made; - is stdout. [-]")]
TemplateText = Annotated[
    str | None, _batch("--template", metavar="TEXT", help="The prompt of a CSV's row: 'Summarise: {text}'.")
]
BatchFormatOption = Annotated[
    BatchFormat, _batch("--format", help="openai: its batch output; jsonl: ours, shorter. [openai]")
]
Resume = Annotated[bool, _batch("--resume", help="Go on with the results that are there; none is made twice.")]
Parallel = Annotated[
    int | None,
    _batch("--parallel", "-np", metavar="N", help="Requests at a time. [by cores and memory, up to 8]"),
]
Deterministic = Annotated[
    bool, _batch("--deterministic", help="Compute each exactly as gen does alone, to the last bit; slower.")
]
BatchLogprobs = Annotated[
    int | None,
    _output("--logprobs", metavar="N", help="Logprobs, with the N likeliest tokens; -1 = all, in jsonl."),
]
BatchSeed = Annotated[
    int, _sampling("-s", "--seed", help="What the seeds of lines come from that name none, with their ids. [0]")
]

"""Flags of llama.cpp that are no flags of `gen`: what they mean, and what to use here.

The names are those of llama.cpp's common/arg.cpp. Where a command has such a flag itself, its row is not used.
"""

from __future__ import annotations

from typing import NamedTuple


class ForeignFlag(NamedTuple):
    """``names``: all names of one flag, or of several alike; one that ends in ``*`` is the beginning of names.

    ``meaning``: what it is in llama.cpp. ``advice``: what to do here.
    """

    names: str
    meaning: str
    advice: str


_DOWNLOAD = "download the GGUF file and name it: -m FILE"
_NO_DRAFT = "gen has no draft model; --lookup N guesses from the text"
_NO_CHOICE = "leave it out: llama.cpp's default is used"
_ONE_ANSWER = "use gen run, which ends after one answer"
_TEXT_ONLY = "leave it out: gen reads text only"
_SERVER = "leave it out: gen is no server"
_UNLOCKED = "leave it out: gen sets no CPU affinity; see taskset"
_GPU = "use -ngl N for the number of layers on the GPU"
_NO_CACHE = "use gen chat --prompt-cache FILE; other commands keep no cache between runs"
_YARN = "use --rope-scaling yarn"
_LOG = "use -v, which prints llama.cpp's log on stderr"
_REASONING = "leave it out: gen prints what the model writes, as it is"
_NO_EMBEDDINGS = "leave it out: gen makes no embeddings"
_ONE_MACHINE = "leave it out: gen computes on this machine"

FOREIGN_FLAGS = (
    ForeignFlag("--usage", "the help", "use --help"),
    ForeignFlag("--version", "the versions", "write gen --version"),
    ForeignFlag("--completion-bash", "a script for completion", "use gen completion bash"),
    ForeignFlag("-C --cpu-mask -Cr --cpu-range --cpu-strict", "where threads run", _UNLOCKED),
    ForeignFlag(
        "-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch",
        "where the threads that read prompts run",
        _UNLOCKED,
    ),
    ForeignFlag("--prio --prio-batch", "the priority of the process", "leave it out; see nice"),
    ForeignFlag("--poll --poll-batch", "how threads wait", _NO_CHOICE),
    ForeignFlag("-a --alias", "the model's alias", _SERVER),
    ForeignFlag("-bf --binary-file", "a prompt file, byte for byte", "use -f FILE, which must be UTF-8"),
    ForeignFlag("-bs --backend-sampling", "sampling on the GPU", "leave it out: gen samples with NumPy"),
    ForeignFlag("-cb --cont-batching", "continuous batching", "use gen batch, which has it"),
    ForeignFlag("-nocb --no-cont-batching", "continuous batching off", "use gen batch --deterministic"),
    ForeignFlag("-cl --cache-list", "the list of downloaded models", "use gen models"),
    ForeignFlag(
        "-cmoe --cpu-moe -ncmoe --n-cpu-moe -ncffn --n-cpu-ffn",
        "layers in the CPU's memory",
        "use -ngl N with fewer layers",
    ),
    ForeignFlag("-cnv --conversation", "conversation mode", "use gen chat, or --chat for one answer"),
    ForeignFlag("-no-cnv --no-conversation", "conversation mode off", "use gen run, which has none"),
    ForeignFlag("-co", "the colours", "leave it out"),
    ForeignFlag("-cram --cache-ram --cache-prompt --cache-reuse", "a server's cache of prompts", _SERVER),
    ForeignFlag(
        "--no-cache-prompt --cache-idle-slots --no-cache-idle-slots", "a server's cache of prompts", _SERVER
    ),
    ForeignFlag("-ctxcp --ctx-checkpoints --swa-checkpoints", "copies of a slot's context", _SERVER),
    ForeignFlag("-cms --checkpoint-min-step", "copies of a slot's context", _SERVER),
    ForeignFlag("-dev --device", "which devices compute", "use -ngl 0 for the CPU alone, -ngl all for the GPU"),
    ForeignFlag("--list-devices", "the list of devices that compute", "use gen doctor, which shows them"),
    ForeignFlag("-dio --direct-io -ndio --no-direct-io", "reading past the system's cache", _NO_CHOICE),
    ForeignFlag("-lzm --lazy-mode", "which tensors stay on the disk", _NO_CHOICE),
    ForeignFlag("-lm --load-mode", "how the file is read", "use --mmap, --no-mmap or --mlock"),
    ForeignFlag("-dr --docker-repo", "a model of Docker's registry", _DOWNLOAD),
    ForeignFlag("-dt --defrag-thold", "when the cache is defragmented, which it no longer is", "leave it out"),
    ForeignFlag("-fit --fit -fitt --fit-target -fitc --fit-ctx", "settings that fit into the GPU's memory", _GPU),
    ForeignFlag("-fitp --fit-print", "the memory that the model needs", "use gen models show MODEL"),
    ForeignFlag("-gan --grp-attn-n -gaw --grp-attn-w", "group attention", "use --rope-scale N"),
    ForeignFlag("-hft --hf-token", "the token for Hugging Face", "set HF_TOKEN, or run `hf auth login` once"),
    ForeignFlag("-mu --model-url", "a model's URL", _DOWNLOAD),
    ForeignFlag("--offline", "no download", "set HF_HUB_OFFLINE=1"),
    ForeignFlag("-i --interactive -if --interactive-first", "interactive mode", "use gen chat"),
    ForeignFlag("-st --single-turn", "a single turn", _ONE_ANSWER),
    ForeignFlag(
        "-mli --multiline-input",
        "typed input of several lines",
        "use gen chat, pipe the prompt in, or use -f FILE",
    ),
    ForeignFlag("--in-prefix-bos", "BOS before typed input", "leave it out: gen adds BOS as the model wants it"),
    ForeignFlag("--simple-io", "plain input and output", "leave it out"),
    ForeignFlag("--kv-unified-per-slot", "the context of each slot", _SERVER),
    ForeignFlag("-kvu --kv-unified -no-kvu --no-kv-unified", "one cache for all sequences", _NO_CHOICE),
    ForeignFlag("-kvo --kv-offload -nkvo --no-kv-offload", "where the cache is kept", _NO_CHOICE),
    ForeignFlag("--op-offload --no-op-offload", "which operations a GPU takes over", _NO_CHOICE),
    ForeignFlag("-nr --repack --no-repack --no-host", "how weights are kept in memory", _NO_CHOICE),
    ForeignFlag("--swa-full", "a whole cache for sliding windows", "leave it out: it is so here"),
    ForeignFlag("--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor", "YaRN in detail", _YARN),
    ForeignFlag("--yarn-beta-slow --yarn-beta-fast", "YaRN in detail", _YARN),
    ForeignFlag("--lora-scaled", "an adapter with its scale", "use --lora FILE=SCALE"),
    ForeignFlag(
        "--control-vector --control-vector-scaled --control-vector-layer-range",
        "a control vector",
        "leave it out: gen has none",
    ),
    ForeignFlag("--warmup", "a trial run before the first token", "leave it out: gen makes none"),
    ForeignFlag("--check-tensors", "a check of the file's numbers", "leave it out"),
    ForeignFlag("-ot --override-tensor", "where single tensors are kept", _GPU),
    ForeignFlag("-lv --verbosity --log-verbosity", "the verbosity of the log", _LOG),
    ForeignFlag("--log-file", "the file of the log", "use -v 2> FILE"),
    ForeignFlag("--log-colors --log-prefix --log-timestamps", "the form of the log", _LOG),
    ForeignFlag("--no-log-prefix --no-log-timestamps --no-log-jsonl --log-jsonl", "the form of the log", _LOG),
    ForeignFlag("--log-prompts-dir", "a log of the prompts", "use --format jsonl, which has the prompt"),
    ForeignFlag("--perf --show-timings", "the printing of timings", "use --stats"),
    ForeignFlag("--no-perf --no-show-timings", "no printing of timings", "leave it out: --stats prints them"),
    ForeignFlag("-ptc --print-token-count", "the count of tokens", "use --stats"),
    ForeignFlag("--verbose-prompt", "a print of the prompt's tokens", "use --echo --format jsonl"),
    ForeignFlag("-sp --special", "a print of special tokens", "use --format jsonl, which has their ids"),
    ForeignFlag("--prompt-cache --prompt-cache-all --prompt-cache-ro", "a file with a prompt's state", _NO_CACHE),
    ForeignFlag("-sysf --system-prompt-file", "a file with the system message", 'use --system "$(cat FILE)"'),
    ForeignFlag("--no-jinja", "chat templates without Jinja", "use --no-chat to leave the template out"),
    ForeignFlag("--skip-chat-parsing", "answers without the parts that a server names", _REASONING),
    ForeignFlag("--no-skip-chat-parsing", "answers in the parts that a server names", _REASONING),
    ForeignFlag("--prefill-assistant --no-prefill-assistant", "how an answer that is begun goes on", _SERVER),
    ForeignFlag(
        "-rea --reasoning",
        "whether the model thinks first",
        """use --chat-template-kwargs '{"enable_thinking": false}'""",
    ),
    ForeignFlag(
        "--reasoning-effort",
        "how long the model thinks",
        """use --chat-template-kwargs '{"reasoning_effort": "low"}'""",
    ),
    ForeignFlag("--reasoning-* --no-reasoning-preserve", "the model's reasoning", _REASONING),
    ForeignFlag("-mm --mmproj -mmu --mmproj-* --no-mmproj --no-mmproj-*", "what reads pictures", _TEXT_ONLY),
    ForeignFlag("--image --image-* --audio --video --video-* --mtmd-*", "pictures and sound", _TEXT_ONLY),
    ForeignFlag("--media-path --vision-*", "pictures and sound", _TEXT_ONLY),
    ForeignFlag("--tts-*", "speech", _TEXT_ONLY),
    ForeignFlag("--fim-* --gpt-oss-*", "a model with its settings", "use -hf USER/REPO"),
    ForeignFlag("--spm-infill", "the order of a text with a gap", "use --set infill=true, and write the marks"),
    ForeignFlag("--embedding --embeddings --embd-* --pooling", "embeddings", _NO_EMBEDDINGS),
    ForeignFlag("--rerank --reranking", "the order of documents", _NO_EMBEDDINGS),
    ForeignFlag("-o --output --output-file", "the file of the text", "use > FILE"),
    ForeignFlag("-np --parallel", "the number of parallel requests", "use gen batch -np N"),
    ForeignFlag("-ns --sequences", "the number of sequences", "use gen batch with a line for each"),
    ForeignFlag("-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", "a file of guesses", "use --lookup N"),
    ForeignFlag("-md --model-draft -hfd -hfrd --hf-repo-draft", "the draft model", _NO_DRAFT),
    ForeignFlag("-cd --ctx-size-draft", "the draft model's context", _NO_DRAFT),
    ForeignFlag("-td --threads-draft -tbd --threads-batch-draft", "the draft model's threads", _NO_DRAFT),
    ForeignFlag("-Cd -Crd -Cbd -Crbd --cpu-mask-* --cpu-range-*", "the draft model's threads", _NO_DRAFT),
    ForeignFlag("--cpu-strict-* --prio-* --poll-*", "the draft model's threads", _NO_DRAFT),
    ForeignFlag("-ngld --gpu-layers-draft --n-gpu-layers-draft", "the draft model's layers on the GPU", _NO_DRAFT),
    ForeignFlag("-devd --device-draft -otd --override-tensor-draft", "where the draft model computes", _NO_DRAFT),
    ForeignFlag("-cmoed --cpu-moe-draft -ncmoed --n-cpu-moe-draft", "where the draft model computes", _NO_DRAFT),
    ForeignFlag("-ctkd --cache-type-k-draft -ctvd --cache-type-v-draft", "the draft model's cache", _NO_DRAFT),
    ForeignFlag("--draft --draft-* --spec-* --no-spec-*", "guesses of several tokens", _NO_DRAFT),
    ForeignFlag("--rpc --server-base", "another machine that computes", _ONE_MACHINE),
    ForeignFlag("--host --port --timeout -to --threads-http --reuse-port", "how a server listens", _SERVER),
    ForeignFlag("--path --cors-* --no-cors-* --ssl-* --sse-*", "how a server listens", _SERVER),
    ForeignFlag("--api-key --api-key-file --api-prefix --sleep-idle-seconds", "how a server listens", _SERVER),
    ForeignFlag("--ui --ui-* --webui --webui-*", "a server's pages", _SERVER),
    ForeignFlag("--no-ui --no-ui-* --no-webui --no-webui-*", "a server's pages", _SERVER),
    ForeignFlag("--tools --tools-* --mcp-* -ag --agent -no-ag --no-agent", "a server's tools", _SERVER),
    ForeignFlag("--models-* --no-models-* --tags", "a server's models", _SERVER),
    ForeignFlag("--lora-init-without-apply", "a server's adapters", "use --lora FILE=SCALE"),
    ForeignFlag("--slot-save-path --no-slots", "what a server offers", _SERVER),
    ForeignFlag("-sps --slot-prompt-similarity --slots --metrics --props", "what a server offers", _SERVER),
)
"""Each flag once, with all its names."""

_BY_NAME = {name: flag for flag in FOREIGN_FLAGS for name in flag.names.split()}
_BEGINNINGS = tuple(name.removesuffix("*") for name in _BY_NAME if name.endswith("*"))


def foreign_flag_sentence(name: str) -> str | None:
    """What a flag means in llama.cpp, and what to do here; None if llama.cpp has no such flag either."""
    flag = _BY_NAME.get(name)
    if flag is None:
        start = next((beginning for beginning in _BEGINNINGS if name.startswith(beginning)), None)
        flag = _BY_NAME.get(f"{start}*")
    return None if flag is None else f"{name} is {flag.meaning} in llama.cpp; {flag.advice}"

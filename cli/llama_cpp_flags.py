"""Flags of llama.cpp with one dash that are no flags of `gen`: what they mean, and what to use here.

The names are those of llama.cpp's common/arg.cpp. Where a command has such a flag, its row is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ForeignFlag(NamedTuple):
    """``meaning``: what the flag is in llama.cpp. ``advice``: what to do here."""

    meaning: str
    advice: str


_DOWNLOAD = "download the GGUF file and name it: -m FILE"
_NO_DRAFT = "gen has no draft model; --lookup N guesses from the text"
_NO_CHOICE = "leave it out: llama.cpp's default is used"
_ONE_ANSWER = "leave it out: gen ends after one answer"
_SERVER = "leave it out: gen is no server"
_UNLOCKED = "leave it out: gen sets no CPU affinity; see taskset"

SINGLE_DASH_FLAGS: Mapping[str, ForeignFlag] = {
    "-C": ForeignFlag("the CPU mask", _UNLOCKED),
    "-Cb": ForeignFlag("the CPU mask for batches", _UNLOCKED),
    "-Cr": ForeignFlag("the CPU range", _UNLOCKED),
    "-Crb": ForeignFlag("the CPU range for batches", _UNLOCKED),
    "-a": ForeignFlag("the model's alias", _SERVER),
    "-bf": ForeignFlag("a prompt file, byte for byte", "use -f FILE"),
    "-cb": ForeignFlag("continuous batching", "use gen batch, which has it"),
    "-cd": ForeignFlag("the draft model's context", _NO_DRAFT),
    "-cl": ForeignFlag("the list of cached models", "use gen -m FILE"),
    "-cmoe": ForeignFlag("keep the experts on the CPU", "use -ngl N with fewer layers"),
    "-cnv": ForeignFlag("conversation mode", "use --chat for one answer"),
    "-co": ForeignFlag("colours", "leave it out"),
    "-ctk": ForeignFlag("the type of cached keys", _NO_CHOICE),
    "-ctv": ForeignFlag("the type of cached values", _NO_CHOICE),
    "-dev": ForeignFlag("the devices", "use -ngl N for the GPU's layers"),
    "-dr": ForeignFlag("a model of Docker's registry", _DOWNLOAD),
    "-fa": ForeignFlag("flash attention", _NO_CHOICE),
    "-gan": ForeignFlag("the group-attention factor", _NO_CHOICE),
    "-gaw": ForeignFlag("the group-attention width", _NO_CHOICE),
    "-hf": ForeignFlag("a model of Hugging Face", _DOWNLOAD),
    "-hff": ForeignFlag("a model file of Hugging Face", _DOWNLOAD),
    "-hfr": ForeignFlag("a model of Hugging Face", _DOWNLOAD),
    "-hft": ForeignFlag("the token for Hugging Face", _DOWNLOAD),
    "-i": ForeignFlag("interactive mode", _ONE_ANSWER),
    "-if": ForeignFlag("interactive mode", _ONE_ANSWER),
    "-kvu": ForeignFlag("the unified KV cache", _NO_CHOICE),
    "-lv": ForeignFlag("the verbosity of the log", "use -v"),
    "-md": ForeignFlag("the draft model", _NO_DRAFT),
    "-mg": ForeignFlag("the main GPU", _NO_CHOICE),
    "-mli": ForeignFlag("input of several lines", "pipe the prompt in, or use -f FILE"),
    "-mm": ForeignFlag("the projector for pictures", "leave it out: gen reads text only"),
    "-mu": ForeignFlag("a model's URL", _DOWNLOAD),
    "-ncmoe": ForeignFlag("keep some experts on the CPU", "use -ngl N with fewer layers"),
    "-ngld": ForeignFlag("the draft model's layers on the GPU", _NO_DRAFT),
    "-nkvo": ForeignFlag("the KV cache in the CPU's memory", _NO_CHOICE),
    "-no-cnv": ForeignFlag("conversation mode off", "use --no-chat, or leave it out"),
    "-nocb": ForeignFlag("continuous batching off", "use gen batch --deterministic"),
    "-np": ForeignFlag("the number of parallel requests", "use gen batch -np N"),
    "-nr": ForeignFlag("repacking of weights off", _NO_CHOICE),
    "-ns": ForeignFlag("the number of sequences", "use gen batch with a line for each"),
    "-ot": ForeignFlag("where single tensors are kept", "use -ngl N for the GPU's layers"),
    "-ptc": ForeignFlag("print the count of tokens", "use --stats"),
    "-sm": ForeignFlag("how the model is split over GPUs", _NO_CHOICE),
    "-sp": ForeignFlag("print special tokens", "use --format jsonl, which has their ids"),
    "-sps": ForeignFlag("the similarity for reusing a slot", _SERVER),
    "-st": ForeignFlag("a single turn", _ONE_ANSWER),
    "-sysf": ForeignFlag("a file with the system message", 'use --system "$(cat FILE)"'),
    "-tb": ForeignFlag("the threads for prompts", "use -t N, which is for both"),
    "-td": ForeignFlag("the draft model's threads", _NO_DRAFT),
    "-to": ForeignFlag("the server's time-out", _SERVER),
    "-ts": ForeignFlag("the share of each GPU", _NO_CHOICE),
    "-ub": ForeignFlag("the physical batch", "use -b N"),
}

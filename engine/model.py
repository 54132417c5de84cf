"""A model: loaded, with a vocabulary and one context; opened for batches; and identified.

Two models are the same if the fingerprints of their files agree, and the settings that the logits depend on. A
digest of the logits of fixed tokens distinguishes processors that compute different logits.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields as dataclass_fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from weakref import WeakSet

from ..common.errors import Word
from ..common.llama_cpp_limits import MAX_SLOTS
from ..logprobs.events import EXACT, BatchExactness
from ..models.errors import ModelError
from ..models.listing import model_name
from ..models.names import first_part, part_paths
from .context import SEGMENT_TOKENS, Context
from .exactness import DecodePlan, DraftExactness, are_slots_like_single_runs, probe_decode_plan
from .load_options import LoadOptions, check_integer
from .model_files import check_files
from .native.context import NativeContext, SequenceSpan
from .native.model import NativeModel
from .native.options import ContextSize
from .placement import Placement, load_placed
from .slots import PromptChunks, SequenceSlots, default_slots
from .vocabulary import Vocabulary

# The options that are not part of "compute" in `Model.identity`. Some have a key of their own. The logits do not
# depend on the others.
_NOT_OF_COMPUTATION = frozenset(
    {
        *("lora", "overrides", "gpu_layers", "batch", "threads"),
        *("n_ctx", "slots", "companions", "mmap", "mlock", "devices", "main_gpu", "tensor_split"),
    }
)


class Model:
    """A GGUF model in memory. `Model.load` makes one; `close` it, or use it in a ``with`` statement.

    Attributes:
        path: the GGUF file; of a split model, the first part.
        lora: adapter files with their scales.
        threads: number of CPU threads.
        vocabulary: the tokens of the model.
        metadata: the GGUF's metadata, as strings.
        chat_template: the GGUF's chat template, in Jinja; None if there is none.
        placement: where its layers are computed.
    """

    def __init__(self, path: Path, native: NativeModel, options: LoadOptions, placement: Placement) -> None:
        # ``options``: as the user gave them. The options of ``native`` have what was chosen for this machine.
        self._native = native
        self._options = options
        self._context_size = ContextSize(placement.context, min(options.batch, placement.context))
        self._context: Context | None = None
        self._second_context: Context | None = None
        # the models that were loaded beside this one, by the path of their files
        self._companions: dict[Path, Model] = {}
        self._decode_plans: dict[int, DecodePlan] = {}  # the plan of a batch, by its number of slots
        self._draft_exactness = DraftExactness(native, self._context_size)
        self.path = path
        self.lora = tuple((Path(file), scale) for file, scale in options.lora)
        self.threads = native.threads
        self.vocabulary = Vocabulary(native.vocabulary)
        self.metadata = native.metadata()
        self.chat_template = native.chat_template()
        self.placement = placement
        _open_models.add(self)

    @classmethod
    def load(
        cls,
        path: str | Path,
        options: LoadOptions | None = None,
        *,
        progress: Callable[[float], bool] | None = None,
        **fields: Any,
    ) -> Model:
        """Load a model.

        Args:
            path: The GGUF file; of a split model, any part.
            options: The options; None: those of ``fields``.
            progress: Called with the loaded fraction, 0 to 1. When it returns False, loading stops.
            fields: The options by their names, such as ``n_ctx=512``, see `LoadOptions`.

        Raises ``ModelError``; its subclass ``AdapterError`` for an invalid adapter, or one that does not fit the
        model.
        """
        if options is None:
            options = LoadOptions(**fields)
        elif fields:
            raise TypeError("the options have all fields in themselves; give one of both")
        path = first_part(Path(path))
        header = check_files(path, options)
        native, placement = load_placed(path, options, header, progress, _reserved_bytes())
        try:
            reason = native.generation_unsupported_reason()
            if reason:
                raise ModelError(f"{path}: {reason}")
            model = cls(path, native, options, placement)
            native.load_adapters()
        except BaseException:
            native.close()
            raise
        return model

    @property
    def context(self) -> Context:
        """The context for single runs, made when it is first used. Raises ``ModelError``."""
        self.check_open()
        if self._context is None:
            self._context = self.make_context()
        return self._context

    @property
    def second_context(self) -> Context:
        """A second context for single runs, in which guidance reads its negative prompt.

        It is made when it is first used. Raises ``ModelError``.
        """
        self.check_open()
        if self._second_context is None:
            self._second_context = self.make_context()
        return self._second_context

    def make_context(self) -> Context:
        """Make another context of the same length. Close it before the model. Raises ``ModelError``."""
        self.check_open()
        native = NativeContext(self._native, self._context_size)
        return Context(native, self._context_size.batch_tokens, self._segment_tokens)

    def companion(self, path: str | Path) -> Model:
        """Return another model with the context, the threads and the GPU of this one, which closes it.

        It is loaded when it is first asked for. Raises ``ModelError``.
        """
        self.check_open()
        key = Path(path).absolute()
        if key not in self._companions:
            # mmap, mlock, lora and overrides are for the files of this model
            options = replace(
                self._options,
                n_ctx=self.context_length,
                slots=self._options.slots or self.placement.slots,
                mmap=None,
                mlock=False,
                lora=(),
                overrides={},
                companions=(),
            )
            self._companions[key] = Model.load(path, options)
        return self._companions[key]

    @property
    def _segment_tokens(self) -> int | None:
        """The number of tokens at whose multiples a batch can be divided without effect; None if unknown."""
        native = self._native
        options = native.options
        # In a mixture of experts, the division of a batch changes how many tokens an expert gets.
        if native.is_mixture or native.uses_gpu:
            return None
        # A CPU computes complete batches with the tiled kernel of flash attention only with these options.
        has_default_cache = options.cache_type_k == options.cache_type_v == "f16"
        has_tiled_attention = has_default_cache and options.microbatch is None and options.flash_attention != "off"
        return SEGMENT_TOKENS if has_tiled_attention else None

    def make_slots(self, count: int, deterministic: bool = False, length: int | None = None) -> SequenceSlots:
        """Make sequence slots. Close them before the model. Raises ``ModelError``.

        Args:
            count: number of slots.
            deterministic: see `BatchEngine`.
            length: maximum number of tokens of each slot; None: the length of the context.
        """
        plan = self._decode_plan(count, deterministic)
        batch_tokens = self._context_size.batch_tokens
        slot_length = self.context_length if length is None else length
        if plan is not None:
            slot_length += plan.single_row_copies - 1  # places for the copies of a token
        native = NativeContext(self._native, ContextSize(slot_length, max(batch_tokens, count), count))
        chunks = PromptChunks(
            batch_tokens,
            deterministic,
            is_divisible=self._segment_tokens is not None and not deterministic,
        )
        return SequenceSlots(native, count, chunks, plan)

    def batch_exactness(self, parallel: int, deterministic: bool = False) -> BatchExactness:
        """Return the promise about answers of `generate_many`. It is measured once for each value of ``parallel``.

        Raises ``ModelError``.
        """
        plan = self._decode_plan(parallel, deterministic)
        return EXACT if plan is None else plan.exactness

    def check_deterministic(self) -> None:
        """Raise ``ModelError`` if the GPU computes a token of a slot otherwise than one of a single run.

        On a CPU, they are always equal.
        """
        self.check_open()
        if self._native.uses_gpu and not are_slots_like_single_runs(self._native, self._context_size):
            raise ModelError(
                f"deterministic: not possible with {self.placement}, which computes other logits for a request of"
                " a batch than for one alone",
                advice=("leave it out, or compute on the CPU with ", Word.GPU_LAYERS, " 0"),
            )

    def draft_exactness(self, draft_tokens: int) -> BatchExactness:
        """Return the promise about runs with drafts of up to ``draft_tokens`` tokens, compared with runs without.

        It is measured for the first and for each longer ``draft_tokens``. Raises ``ModelError``.
        """
        self.check_open()
        return self._draft_exactness.promise(draft_tokens)

    def _decode_plan(self, count: int, deterministic: bool) -> DecodePlan | None:
        """Return how a batch decodes rows; None if each request is computed separately."""
        check_integer("parallel", count, 1, MAX_SLOTS)
        self.check_open()
        # On a CPU, one slot computes as a single run does; a GPU reads the prompt of a slot in smaller batches.
        is_like_single_run = count == 1 and not self._native.uses_gpu
        if deterministic or is_like_single_run or not self._native.decodes_sequences_together:
            return None
        if count not in self._decode_plans:
            self._decode_plans[count] = probe_decode_plan(self._native, self.context_length, count)
        return self._decode_plans[count]

    @property
    def needs_context(self) -> bool:
        """True if the model has no context yet, for which its placement has reserved memory."""
        return self._native.open_contexts == 0

    @property
    def can_truncate(self) -> bool:
        """True if a sequence can be truncated to any length; a recurrent model's state cannot be."""
        return self._native.can_truncate

    @property
    def default_parallel(self) -> int:
        """The default number of requests that are computed together: four per thread, at most 8.

        It is lower if the slots' contexts would need more than half of the free memory, or more than a GPU has.
        """
        slot_bytes = max(1, self._native.cache_bytes_per_token() * self.context_length)
        count = min(default_slots(self.threads), _free_memory_bytes() // 2 // slot_bytes)
        return max(1, count if self.placement.slots is None else min(count, self.placement.slots))

    @property
    def context_length(self) -> int:
        """The length of the context of a run, and of each slot of a batch, tokens."""
        return self._context_size.length

    @property
    def trained_context(self) -> int:
        """The context length that the model was trained with, in tokens."""
        return self._native.trained_context

    @cached_property
    def name(self) -> str:
        """The file's name without its suffix; for a model of Ollama, ``ollama:NAME:TAG``."""
        return model_name(self.path, [file for file, _ in self.lora])

    def identity(self) -> dict[str, Any]:
        """Return what the logits of the model depend on, as JSON: fingerprints of its files, and settings.

        ``threads`` is one of the settings: beyond 256 tokens, it changes what llama.cpp computes for a single
        token. Raises ``ModelError`` for a file that can no longer be read.
        """
        options = self._native.options
        compute_options: dict[str, Any] = {}
        for option in dataclass_fields(options):
            value = getattr(options, option.name)
            if option.name not in _NOT_OF_COMPUTATION and value != option.default:
                compute_options[option.name] = value
        return {
            "fingerprint": fingerprint(self.path),
            "lora": [[fingerprint(file), scale] for file, scale in self.lora],
            "overrides": dict(options.overrides),
            "gpu_layers": options.gpu_layers,
            **({"gpus": list(self.placement.cards)} if self.placement.cards else {}),
            "batch": self._context_size.batch_tokens,
            "threads": self.threads,
            "compute": compute_options,
        }

    def kernel_digest(self) -> str:
        """Return a string that is equal on two machines if they compute bit-identical logits of this model.

        It is measured with fixed tokens. Raises ``ModelError``.
        """
        return kernel_digest(self._native)

    def special_text(self, name: str) -> str:
        """Return the text of the special token ``bos``, ``eos`` or ``pad``; empty if there is none."""
        token = self._native.vocabulary.special(name)
        return "" if token is None else self.vocabulary.piece(token).decode("utf-8", "replace")

    def abort(self) -> None:
        """Abort the current computation of llama.cpp for this model within milliseconds, or else the next one.

        Safe from any thread. `generate` and `score` end as if interrupted if they have ``is_interrupted``; every
        other call raises ``AbortedError``. The model can be used again. A GPU other than Apple's finishes what it
        has begun.
        """
        self._native.abort_flag.set()

    def close(self) -> None:
        """Free the contexts and the model, and the models that were loaded beside it."""
        for companion in self._companions.values():
            companion.close()
        self._companions.clear()
        for context in (self._context, self._second_context):
            if context is not None:
                context.close()
        self._context = None
        self._second_context = None
        self._native.close()
        _open_models.discard(self)

    def check_open(self) -> None:
        """Raise ``ModelError`` if the model was closed."""
        if self._native.handle is None:
            raise ModelError("the model is closed")

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# Models that are loaded. Their contexts are made later, and a next model must leave memory of the GPUs for them.
_open_models = WeakSet[Model]()


def _reserved_bytes() -> Mapping[str, int]:
    """Return the memory of each GPU, by name, that models need for contexts that they have not made yet."""
    reserved = Counter[str]()
    for model in list(_open_models):
        if model.needs_context:
            reserved.update(model.placement.context_bytes)
    return reserved


def _free_memory_bytes() -> int:
    """Return the memory that is available without swapping; if the system does not report it, all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# Only some blocks of a file are read, because reading a whole file would take seconds.
_BLOCK_BYTES = 65_536
_BLOCK_COUNT = 64


def fingerprint(path: Path) -> str:
    """Return a SHA-256, in hexadecimal, of the size of a model's files and of 4 MB spread evenly over each."""
    # Two models have different fingerprints unless their files agree in all these places. Raises ``ModelError``.
    parts = part_paths(path)
    try:
        return _fingerprint(tuple((part, *_size_and_time(part)) for part in parts))
    except OSError as error:
        raise ModelError(f"{error.filename}: the file cannot be read ({error.strerror})") from None


def _size_and_time(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=16)
def _fingerprint(parts: Iterable[tuple[Path, int, int]]) -> str:
    """Return the fingerprint of files, given as path, size and time of the last change."""
    # The time is not part of the fingerprint. It makes the cache compute the fingerprint again after a change.
    digest = hashlib.sha256()
    for path, size, _ in parts:
        digest.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            _hash_blocks(file, size, digest)
    return digest.hexdigest()


def _hash_blocks(file: BinaryIO, size: int, digest: hashlib._Hash) -> None:
    step = max(_BLOCK_BYTES, (size - _BLOCK_BYTES) // (_BLOCK_COUNT - 1))
    starts = range(0, max(1, size - _BLOCK_BYTES), step)
    for start in starts[: _BLOCK_COUNT - 1]:  # the last block ends at the end of the file
        file.seek(start)
        digest.update(file.read(_BLOCK_BYTES))
    file.seek(-min(size, _BLOCK_BYTES), io.SEEK_END)
    digest.update(file.read(_BLOCK_BYTES))


_DIGEST_CONTEXT_TOKENS = 256  # the shortest context that llama.cpp makes
_DIGEST_PROMPT_TOKENS = 64  # read in one call, as a prompt is read
_DIGEST_ROWS = 8  # decoded in one call, as a batch decodes its slots


def kernel_digest(model: NativeModel) -> str:
    """Return a SHA-256, in hexadecimal, of the logits of fixed tokens: of a prompt, of one row, of eight rows."""
    # Two machines with the same digest compute bit-identical logits for these tokens. Computing the digest takes
    # about as long as reading 75 tokens of a prompt, in a separate context. Raises ``ModelError``.
    digest = hashlib.sha256()
    sequence_count = _DIGEST_ROWS + 1 if model.decodes_sequences_together else 1
    native = NativeContext(model, ContextSize(_DIGEST_CONTEXT_TOKENS, _DIGEST_CONTEXT_TOKENS, sequence_count))
    try:
        native.decode(_digest_tokens(0, _DIGEST_PROMPT_TOKENS, native.vocab_size), 0)
        digest.update(native.logits().tobytes())
        native.decode(_digest_tokens(1, 1, native.vocab_size), _DIGEST_PROMPT_TOKENS)
        digest.update(native.logits().tobytes())
        if sequence_count > 1:
            sequences = range(1, sequence_count)
            spans = [SequenceSpan(_digest_tokens(number, 1, native.vocab_size), 0, number) for number in sequences]
            native.decode_spans(spans)
            for row in range(_DIGEST_ROWS):
                digest.update(native.logits_at(row).tobytes())
    finally:
        native.close()
    return digest.hexdigest()


def _digest_tokens(first: int, count: int, vocab_size: int) -> list[int]:
    """Return token ids from anywhere in the vocabulary."""
    return [(7919 * (first + place + 1)) % vocab_size for place in range(count)]

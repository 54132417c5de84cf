"""A model: loaded, with a vocabulary and one context; opened for batches; and identified.

Two models are the same if the fingerprints of their files agree, and the settings that the logits depend on. A
digest of the logits of fixed tokens distinguishes processors that compute different logits.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ..common.llama_cpp_limits import MAX_SLOTS
from ..logprobs.events import EXACT, BatchExactness
from ..models.errors import ModelError
from ..models.listing import model_name
from ..models.names import part_paths
from .context import SEGMENT_TOKENS, Context
from .exactness import DecodePlan, DraftExactness, probe_decode_plan
from .native.context import NativeContext, SequenceSpan
from .native.model import NativeModel
from .native.options import (
    LLAMA_CPPS_DEFAULTS,
    LLAMA_CPPS_GPU_DEFAULTS,
    ComputeOptions,
    ContextOptions,
    GpuOptions,
    MetadataOverrides,
    check_number,
    default_slots,
    plan_load,
)
from .slots import PromptChunks, SequenceSlots
from .vocabulary import Vocabulary


class Model:
    """A GGUF model in memory. `Model.load` makes one; `close` it, or use it in a ``with`` statement.

    Attributes:
        path: the GGUF file; of a split model, the first part.
        lora: adapter files with their scales.
        threads: number of CPU threads.
        vocabulary: the tokens of the model.
        metadata: the GGUF's metadata, as strings.
        chat_template: the GGUF's chat template, in Jinja; None if there is none.
    """

    def __init__(self, path: Path, native: NativeModel, context: ContextOptions) -> None:
        self._native = native
        self._context_options = context
        self._adapters: list[tuple[object, float]] = []
        self._context: Context | None = None
        self._second_context: Context | None = None
        # the models that were loaded beside this one, by the path of their files
        self._companions: dict[Path, Model] = {}
        self._decode_plans: dict[int, DecodePlan] = {}  # the plan of a batch, by its number of slots
        self._draft_exactness = DraftExactness(native, context, self._adapters)
        self.path = path
        self.lora: tuple[tuple[Path, float], ...] = ()
        self._overrides: MetadataOverrides = {}
        self._gpu_layers = 0
        self.threads = context.threads
        self.vocabulary = Vocabulary(native.vocabulary)
        self.metadata = native.metadata()
        self.chat_template = native.chat_template()

    @classmethod
    def load(  # noqa: PLR0913 - the arguments are public
        cls,
        path: str | Path,
        *,
        n_ctx: int | None = None,
        threads: int | None = None,
        gpu_layers: int = 0,
        batch: int = 512,
        mmap: bool | None = None,
        mlock: bool = False,
        lora: Sequence[tuple[str | Path, float]] = (),
        overrides: MetadataOverrides | None = None,
        compute: ComputeOptions = LLAMA_CPPS_DEFAULTS,
        gpu: GpuOptions = LLAMA_CPPS_GPU_DEFAULTS,
        progress: Callable[[float], bool] | None = None,
    ) -> Model:
        """Load a model.

        Args:
            path: The GGUF file; of a split model, any part.
            n_ctx: Tokens of context; None: 4,096, or fewer if the model was trained with fewer; 0: the length that
                the model was trained with.
            threads: Number of CPU threads; None: the physical cores.
            gpu_layers: Number of layers that are computed on the GPU; -1: all.
            batch: Maximum number of tokens of a prompt that one call of llama.cpp reads.
            mmap: Whether to map the file into memory instead of reading it; None: models of at most 500 MB that
                are not on a GPU are read.
            mlock: Whether to keep the model from being swapped out.
            lora: Adapter files with their scales.
            overrides: Values that replace values of the file's metadata, by key.
            compute: Settings that are rarely changed: flash attention, the types of the cache, RoPE.
            gpu: The division of the model among several GPUs.
            progress: Called with the loaded fraction, 0 to 1. When it returns False, loading stops.

        Raises ``ModelError``; its subclass ``AdapterError`` for an invalid adapter, or one that does not fit the
        model.
        """
        plan = plan_load(
            path,
            n_ctx=n_ctx,
            threads=threads,
            gpu_layers=gpu_layers,
            batch=batch,
            mmap=mmap,
            mlock=mlock,
            lora=lora,
            overrides=overrides,
            compute=compute,
            gpu=gpu,
        )
        path = plan.path
        native = NativeModel(str(path), plan.options, progress)
        try:
            if reason := native.generation_unsupported_reason():
                raise ModelError(f"{path}: {reason}")
            model = cls(path, native, plan.context_options(native.trained_context))
            model.lora = plan.lora
            model._overrides, model._gpu_layers = plan.options.overrides, plan.options.gpu_layers
            model._adapters = [(native.load_adapter(str(file)), scale) for file, scale in plan.lora]
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
        native = NativeContext(self._native, self._context_options, self._adapters)
        return Context(native, self._context_options.batch_tokens, self._segment_tokens)

    def companion(self, path: str | Path) -> Model:
        """Return another model with the context, the threads and the GPU of this one, which closes it.

        It is loaded when it is first asked for. Raises ``ModelError``.
        """
        self.check_open()
        key = Path(path).absolute()
        if key not in self._companions:
            options = self._context_options
            self._companions[key] = Model.load(
                path,
                n_ctx=options.context_length,
                threads=self.threads,
                gpu_layers=self._gpu_layers,
                batch=options.batch_tokens,
                compute=options.compute_options,
            )
        return self._companions[key]

    @property
    def _segment_tokens(self) -> int | None:
        """The number of tokens at whose multiples a batch can be divided without effect; None if unknown."""
        # In a mixture of experts, the division of a batch changes how many tokens an expert gets, and so the
        # logits.
        has_tiled_attention = self._context_options.compute_options.has_tiled_attention
        return (
            SEGMENT_TOKENS
            if has_tiled_attention and not (self._native.is_mixture or self._native.uses_gpu)
            else None
        )

    def make_slots(self, count: int, deterministic: bool = False, length: int | None = None) -> SequenceSlots:
        """Make sequence slots. Close them before the model. Raises ``ModelError``.

        Args:
            count: number of slots.
            deterministic: see `BatchEngine`.
            length: maximum number of tokens of each slot; None: the length of the context.
        """
        plan = self._decode_plan(count, deterministic)
        options = self._context_options
        batch = max(options.batch_tokens, count)
        slot_length = options.context_length if length is None else length
        slot_length += plan.single_row_copies - 1 if plan is not None else 0
        context = replace(options, context_length=slot_length, batch_tokens=batch, sequence_count=count)
        native = NativeContext(self._native, context, self._adapters)
        chunks = PromptChunks(
            options.batch_tokens,
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

    def draft_exactness(self, draft_tokens: int) -> BatchExactness:
        """Return the promise about runs with drafts of up to ``draft_tokens`` tokens, compared with runs without.

        It is measured for the first and for each longer ``draft_tokens``. Raises ``ModelError``.
        """
        self.check_open()
        return self._draft_exactness.promise(draft_tokens)

    def _decode_plan(self, count: int, deterministic: bool) -> DecodePlan | None:
        """Return how a batch decodes rows; None if each request is computed separately."""
        check_number("parallel", count, 1, MAX_SLOTS)
        self.check_open()
        if deterministic or count == 1 or not self._native.decodes_sequences_together:
            return None
        if count not in self._decode_plans:
            context = replace(self._context_options, sequence_count=count)
            self._decode_plans[count] = probe_decode_plan(self._native, context, self._adapters)
        return self._decode_plans[count]

    @property
    def can_truncate(self) -> bool:
        """True if a sequence can be truncated to any length; a recurrent model's state cannot be."""
        return self._native.can_truncate

    @property
    def default_parallel(self) -> int:
        """The default number of requests that are computed together: four per thread, at most 8.

        It is lower if the slots' contexts would need more than half of the free memory.
        """
        slot_bytes = max(1, self._native.cache_bytes_per_token() * self._context_options.context_length)
        return max(1, min(default_slots(self.threads), _free_memory_bytes() // 2 // slot_bytes))

    @property
    def context_length(self) -> int:
        """The length of the context of a run, and of each slot of a batch, tokens."""
        return self._context_options.context_length

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
        return {
            "fingerprint": fingerprint(self.path),
            "lora": [[fingerprint(file), scale] for file, scale in self.lora],
            "overrides": dict(self._overrides),
            "gpu_layers": self._gpu_layers,
            "batch": self._context_options.batch_tokens,
            "threads": self.threads,
            "compute": {
                name: value
                for name, value in asdict(self._context_options.compute_options).items()
                if value != getattr(LLAMA_CPPS_DEFAULTS, name)
            },
        }

    def kernel_digest(self) -> str:
        """Return a string that is equal on two machines if they compute bit-identical logits of this model.

        It is measured with fixed tokens. Raises ``ModelError``.
        """
        return kernel_digest(self._native, self.threads, self._context_options.compute_options, self._adapters)

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
        self._context = self._second_context = None
        self._native.close()

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


def _free_memory_bytes() -> int:
    """Return the memory that is available without swapping; if the system does not report it, all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# Size and number of the blocks of a file that are read. Reading a whole file would take seconds.
_BLOCK_BYTES, _BLOCK_COUNT = 65_536, 64


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
    for start in [*range(0, max(1, size - _BLOCK_BYTES), step)][: _BLOCK_COUNT - 1]:
        file.seek(start)
        digest.update(file.read(_BLOCK_BYTES))
    file.seek(-min(size, _BLOCK_BYTES), io.SEEK_END)
    digest.update(file.read(_BLOCK_BYTES))


_DIGEST_CONTEXT_TOKENS = 256  # the shortest context that llama.cpp makes
# Number of tokens that the digest reads in one call, as a prompt is read. Number of rows that it decodes in one
# call, as a batch decodes its slots.
_DIGEST_PROMPT_TOKENS, _DIGEST_ROWS = 64, 8


def kernel_digest(
    model: NativeModel, threads: int, compute_options: ComputeOptions, adapters: Sequence[tuple[object, float]]
) -> str:
    """Return a SHA-256, in hexadecimal, of the logits of fixed tokens: of a prompt, of one row, of eight rows."""
    # Two machines with the same digest compute bit-identical logits for these tokens. Computing the digest takes
    # about as long as reading 75 tokens of a prompt, in a separate context. Raises ``ModelError``.
    digest = hashlib.sha256()
    sequence_count = _DIGEST_ROWS + 1 if model.decodes_sequences_together else 1
    length = _DIGEST_CONTEXT_TOKENS
    native = NativeContext(
        model, ContextOptions(length, threads, length, sequence_count, False, compute_options), adapters
    )
    try:
        native.decode(_digest_tokens(0, _DIGEST_PROMPT_TOKENS, native.vocab_size), 0)
        digest.update(native.logits().tobytes())
        native.decode(_digest_tokens(1, 1, native.vocab_size), _DIGEST_PROMPT_TOKENS)
        digest.update(native.logits().tobytes())
        if sequence_count > 1:
            native.decode_spans(
                [
                    SequenceSpan(_digest_tokens(row, 1, native.vocab_size), 0, row)
                    for row in range(1, sequence_count)
                ]
            )
            for row in range(_DIGEST_ROWS):
                digest.update(native.logits_at(row).tobytes())
    finally:
        native.close()
    return digest.hexdigest()


def _digest_tokens(first: int, count: int, vocab_size: int) -> list[int]:
    """Return token ids from anywhere in the vocabulary."""
    return [(7919 * (first + place + 1)) % vocab_size for place in range(count)]

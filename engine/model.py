"""A loaded model with its vocabulary and one context."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from ..common.machine import MAX_SLOTS
from ..logprobs.events import EXACT, BatchExactness
from ..models.errors import ModelError
from ..models.gguf import duplicate_token
from ..models.listing import model_name
from .compute_options import ComputeOptions
from .context import Context
from .context_options import ContextOptions
from .decode_plan import DecodePlan
from .early_load import EarlyLoad
from .gpu_options import GpuOptions
from .load_plan import LLAMA_CPPS_DEFAULTS, LLAMA_CPPS_GPU_DEFAULTS, LoadPlan, check_number, plan_load
from .metadata_overrides import MetadataOverrides
from .native_context import NativeContext
from .native_model import NativeModel
from .prompt_chunks import PromptChunks
from .prompt_pieces import PIECE_TOKENS
from .row_probe import probe_decode_plan
from .sequence_slots import SequenceSlots
from .slots import default_slots
from .vocabulary import Vocabulary


class Model:
    """A GGUF model in memory. Make one with `Model.load`; `close` it, or use it in a ``with``.

    Attributes: ``path``; ``vocabulary``; ``metadata``, the GGUF's, as texts; ``chat_template``, the GGUF's, or
    None; ``threads``; ``lora``, the adapter files with their scales.
    """

    def __init__(self, path: Path, native: NativeModel, context: ContextOptions) -> None:
        self._native = native
        self._options = context
        self._adapters: list[tuple[object, float]] = []
        self._context: Context | None = None
        self._decode_plans: dict[int, DecodePlan] = {}
        """By the number of slots."""
        self.path = path
        self.lora: tuple[tuple[Path, float], ...] = ()
        self._overrides: MetadataOverrides = {}
        self._gpu_layers = 0
        self._early: EarlyLoad | None = None
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
            n_ctx: Tokens of context; None: 4,096, or fewer if the model was trained with fewer; 0: all that it was
                trained with.
            threads: Default: the physical cores.
            gpu_layers: Layers that are computed on the GPU; -1: all.
            batch: How many tokens of a prompt are read at once.
            mmap: Map the file into memory instead of reading it; None: read a file of 16 to 500 MB where Linux
                has huge pages for it, and map others.
            mlock: Keep the model from being swapped out.
            lora: Adapter files with their scales.
            overrides: Values that stand in for those of the file's metadata, by key.
            compute: What is rarely set: flash attention, the types of the cache, RoPE.
            gpu: How the model is divided among several GPUs.
            progress: Called with the fraction that is loaded, 0 to 1. When it returns False, loading stops.

        Raises ``ModelError``; its kind ``AdapterError`` for an adapter that is not one, or does not fit the model.
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
        return cls.from_plan(plan, progress)

    @classmethod
    def from_plan(
        cls,
        plan: LoadPlan,
        progress: Callable[[float], bool] | None = None,
        early: EarlyLoad | None = None,
    ) -> Model:
        """Load a model as `load` does.

        Args:
            plan: The file, which was checked, and how it is loaded.
            progress: As in `load`.
            early: What llama.cpp has loaded already, or still loads, by this plan; None: nothing.

        Raises ``ModelError``.
        """
        path = plan.path
        try:
            native = NativeModel(str(path), plan.options, progress, early)
        except ModelError as error:
            duplicate = duplicate_token(path)
            raise ModelError(f"{path}: {duplicate}; convert the model again") if duplicate else error from None
        try:
            if reason := native.why_it_cannot_generate():
                raise ModelError(f"{path}: {reason}")
            model = cls(path, native, plan.context_options(native.trained_context))
            model.lora, model._early = plan.lora, early
            model._overrides, model._gpu_layers = plan.options.overrides, plan.options.gpu_layers
            model._adapters = [(native.load_adapter(str(file)), scale) for file, scale in plan.lora]
        except BaseException:
            native.close()
            raise
        return model

    @property
    def context(self) -> Context:
        """The model's own context, made when it is first used. Raises ``ModelError``."""
        self._check_open()
        if self._context is None:
            early = None if self._early is None else self._early.take_context(self._options)
            native = NativeContext(self._native, self._options, self._adapters, early)
            self._context = Context(native, self._options.batch, self._piece_tokens)
        return self._context

    @property
    def _piece_tokens(self) -> int | None:
        """Into which pieces a batch of a prompt can be divided without any effect; None: it is not known.

        A mixture of experts sends the tokens of a batch to experts, whose shares depend on the division.
        """
        is_known = self._options.compute.has_tiled_attention
        return PIECE_TOKENS if is_known and not (self._native.is_mixture or self._native.uses_gpu) else None

    def make_slots(self, count: int, isolated: bool = False) -> SequenceSlots:
        """Make ``count`` sequence slots, each as long as the context; see `SequenceSlots` for ``isolated``.

        Close them before the model. Raises ``ModelError``.
        """
        plan = self._decode_plan(count, isolated)
        options = self._options
        batch = max(options.batch, count)
        length = options.length + (plan.lone_copies - 1 if plan is not None else 0)
        context = replace(options, length=length, batch=batch, sequences=count)
        native = NativeContext(self._native, context, self._adapters)
        chunks = PromptChunks(
            options.batch, isolated, is_divisible=self._piece_tokens is not None and not isolated
        )
        return SequenceSlots(native, count, chunks, plan)

    def batch_exactness(self, parallel: int, isolated: bool = False) -> BatchExactness:
        """What holds for the answers of `generate_many`. It is measured once for each value of ``parallel``.

        Raises ``ModelError``.
        """
        plan = self._decode_plan(parallel, isolated)
        return EXACT if plan is None else plan.exactness

    def _decode_plan(self, count: int, isolated: bool) -> DecodePlan | None:
        """How a batch decodes rows; None if each request is computed separately."""
        check_number("parallel", count, 1, MAX_SLOTS)
        self._check_open()
        if isolated or count == 1 or not self._native.decodes_sequences_together:
            return None
        if count not in self._decode_plans:
            context = replace(self._options, sequences=count)
            self._decode_plans[count] = probe_decode_plan(self._native, context, self._adapters)
        return self._decode_plans[count]

    @property
    def can_truncate(self) -> bool:
        """True if a sequence can be truncated to any length; a recurrent model's state cannot."""
        return self._native.can_truncate

    @property
    def default_parallel(self) -> int:
        """Requests to compute at a time: four per thread, at most 8, at most what half the free memory holds."""
        slot_bytes = max(1, self._native.cache_bytes_per_token() * self._options.length)
        return max(1, min(default_slots(self.threads), _free_memory_bytes() // 2 // slot_bytes))

    @property
    def trained_context(self) -> int:
        """The context length that the model was trained with, tokens."""
        return self._native.trained_context

    @cached_property
    def name(self) -> str:
        """The file's name without its suffix; of a model of Ollama's ``ollama:NAME:TAG``."""
        return model_name(self.path)

    def identity(self) -> dict[str, Any]:
        """What the logits of the model depend on, as JSON: fingerprints of its files, and how it computes.

        ``threads`` is among it: beyond 256 tokens, they change what llama.cpp computes for a single token. Raises
        ``ModelError`` for a file that cannot be read any more.
        """
        from .model_identity import fingerprint  # noqa: PLC0415 - few runs need it

        return {
            "fingerprint": fingerprint(self.path),
            "lora": [[fingerprint(file), scale] for file, scale in self.lora],
            "overrides": dict(self._overrides),
            "gpu_layers": self._gpu_layers,
            "batch": self._options.batch,
            "threads": self.threads,
            "compute": {
                name: value
                for name, value in asdict(self._options.compute).items()
                if value != getattr(LLAMA_CPPS_DEFAULTS, name)
            },
        }

    def kernel_digest(self) -> str:
        """A text that two machines share if they compute the logits of this model alike, bit for bit.

        It is measured on some tokens. Raises ``ModelError``.
        """
        from .kernel_digest import kernel_digest  # noqa: PLC0415 - few runs need it

        return kernel_digest(self._native, self.threads, self._options.compute, self._adapters)

    def special_text(self, name: str) -> str:
        """The text of the special token ``bos`` or ``eos``; empty if there is none."""
        token = self._native.vocabulary.special(name)
        return "" if token is None else self.vocabulary.piece(token).decode("utf-8", "replace")

    def abort(self) -> None:
        """End what llama.cpp is computing for this model, within milliseconds; or, if it is idle, what comes next.

        Safe from any thread. `generate` and `score` end as if interrupted if they have ``is_interrupted``; every
        other call raises ``AbortedError``. The model can be used again. A GPU other than Apple's finishes what it
        began.
        """
        self._native.abort_flag.set()

    def close(self) -> None:
        """Free the context and the model."""
        if self._context is not None:
            self._context.close()
            self._context = None
        self._native.close()

    def _check_open(self) -> None:
        if self._native.handle is None:
            raise ModelError("the model is closed")

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_memory_bytes() -> int:
    """The memory that is available without swapping, if the system tells; otherwise all memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

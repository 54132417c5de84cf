"""A loaded model with its vocabulary and one context."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from .context import Context
from .errors import ModelError
from .gguf import check_gguf
from .native import LoadOptions, NativeModel
from .native_context import ContextOptions, NativeContext
from .slots import Slots
from .vocabulary import Vocabulary

DEFAULT_CONTEXT = 4096
_MOST_TOKENS = 2**31 - 1
_MOST_THREADS = 512
MAX_SLOTS = 256
"""What llama.cpp is built for."""


class Model:
    """A GGUF model in memory. Make one with `Model.load`; `close` it, or use it in a `with`."""

    def __init__(self, path: Path, native: NativeModel, context: ContextOptions) -> None:
        self._native = native
        self._options = context
        self._adapters: list[tuple[object, float]] = []
        self._context: Context | None = None
        self.path = path
        self.lora: tuple[tuple[Path, float], ...] = ()
        self.threads = context.threads
        self.vocabulary = Vocabulary(native)
        self.metadata = native.metadata()
        self.chat_template = native.chat_template()

    @classmethod
    def load(  # noqa: PLR0913 - each is one thing that llama.cpp's users set by name
        cls,
        path: str | Path,
        *,
        n_ctx: int | None = None,
        threads: int | None = None,
        gpu_layers: int = 0,
        batch: int = 512,
        mmap: bool = True,
        mlock: bool = False,
        lora: Sequence[tuple[str | Path, float]] = (),
        progress: Callable[[float], bool] | None = None,
    ) -> Model:
        """Load a model.

        ``n_ctx``: tokens of context; None: 4,096, or fewer if the model was trained with fewer; 0: all that
        it was trained with. ``threads``: default the physical cores. ``gpu_layers``: -1 all. ``batch``: prompt
        tokens at a time. ``lora``: adapter files with their scales. ``progress``: called with the part that is
        loaded, 0..1; when it returns False, loading stops. Raises ``ModelError``.
        """
        path = Path(path)
        _check("n_ctx", n_ctx, 0, _MOST_TOKENS)
        _check("threads", threads, 1, _MOST_THREADS)
        _check("gpu_layers", gpu_layers, -1, _MOST_TOKENS)
        _check("batch", batch, 1, _MOST_TOKENS)
        check_gguf(path)
        for file, _ in lora:
            check_gguf(Path(file))
        native = NativeModel(str(path), LoadOptions(gpu_layers, mmap, mlock), progress)
        try:
            if not native.generates:
                raise ModelError(f"{path}: this model does not write text (an embedding or encoder model)")
            length = _context_length(n_ctx, native.trained_context)
            model = cls(path, native, ContextOptions(length, threads or physical_cores(), min(batch, length)))
            model.lora = tuple((Path(file), scale) for file, scale in lora)
            model._adapters = [(native.load_adapter(str(file)), scale) for file, scale in lora]
        except BaseException:
            native.close()
            raise
        return model

    @property
    def context(self) -> Context:
        """The model's context, made when it is first asked for."""
        if self._native.handle is None:
            raise ModelError("the model is closed")
        if self._context is None:
            native = NativeContext(self._native, self._options, self._adapters)
            self._context = Context(native, self._options.batch)
        return self._context

    def slots(self, count: int, apart: bool = False) -> Slots:
        """Make room for ``count`` texts side by side, each as long as the context; to be closed before the model.

        Raises ``ModelError``. See `Slots` for ``apart``.
        """
        _check("parallel", count, 1, MAX_SLOTS)
        if self._native.handle is None:
            raise ModelError("the model is closed")
        options = self._options
        batch = max(options.batch, count)
        length = options.length + (count > 1 and not apart)
        native = NativeContext(self._native, ContextOptions(length, options.threads, batch, count), self._adapters)
        return Slots(native, count, options.batch, apart)

    @property
    def goes_back(self) -> bool:
        """Can a text be cut back to some length? Not where the model is recurrent."""
        return self._native.goes_back

    @property
    def parallel(self) -> int:
        """How many texts to write side by side: four a core, at most 8 and what half of the free memory holds."""
        each = max(1, self._native.bytes_a_token() * self._options.length)
        return max(1, min(8, 4 * self.threads, _free_memory() // 2 // each))

    @property
    def name(self) -> str:
        """The file's name, without its ending."""
        return self.path.stem

    def special_text(self, name: str) -> str:
        """How the special token ``bos`` or ``eos`` is written; empty if there is none."""
        token = self._native.special(name)
        return "" if token is None else self.vocabulary.piece(token).decode("utf-8", "replace")

    def close(self) -> None:
        """Free the context and the model."""
        if self._context is not None:
            self._context.close()
            self._context = None
        self._native.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check(name: str, value: object, low: int, high: int) -> None:
    """Refuse what C would read as something else, or crash on."""
    if value is None and name in ("n_ctx", "threads"):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ModelError(f"{name}: {value!r} is not a whole number within {low}..{high}")


def _context_length(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return min(DEFAULT_CONTEXT, trained) if trained > 0 else DEFAULT_CONTEXT
    return wanted if wanted > 0 else trained


def physical_cores() -> int:
    """The physical cores that this process may use: hardware threads of one core count once."""
    try:
        usable = os.sched_getaffinity(0)
        siblings = {
            Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
            for cpu in usable
        }
        return max(1, len(siblings))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)


def _free_memory() -> int:
    """Bytes that can be had without swapping, where the system tells; else all that there are."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

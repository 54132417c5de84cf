"""The flags of a model, of llama.cpp's log, and of commands that can compute on a cluster."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path

from ...common.errors import UsageError
from ...common.machine import CACHE_TYPES, INT32_MAX, MAX_THREADS, NUMA_STRATEGIES, ROPE_SCALINGS, SPLIT_MODES
from ..flags import POSITIVE, CompletionKind, Options, at_least, flag, make_switch_parser, options_class, within

_model = partial(flag, panel="Model")


class FlashAttention(StrEnum):
    """When flash attention is used."""

    on = "on"
    off = "off"
    auto = "auto"


CacheType = StrEnum("CacheType", {name: name for name in CACHE_TYPES})  # type: ignore[misc]
"""The number format of a cache of keys or values."""
RopeScaling = StrEnum("RopeScaling", {name: name for name in ROPE_SCALINGS})  # type: ignore[misc]
"""How RoPE is scaled."""
SplitMode = StrEnum("SplitMode", {name: name for name in SPLIT_MODES})  # type: ignore[misc]
"""How a model is divided among GPUs."""
NumaStrategy = StrEnum("NumaStrategy", {name: name for name in NUMA_STRATEGIES})  # type: ignore[misc]
"""How several NUMA nodes are used."""
_F16 = CacheType("f16")
_CACHE_TYPE_NAMES = ", ".join(CACHE_TYPES)
_ALL_LAYERS = -1


def _layer_count(text: str) -> int:
    """A number of layers, or ``all``."""
    if text == "all":
        return _ALL_LAYERS
    if text == "auto":
        raise ValueError("'auto' is not a whole number, nor all; 0, the default, leaves the GPU out")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number, nor all") from None


def _thread_count(text: str) -> int | None:
    """A number of threads; None: llama.cpp's 0 and -1, by which it chooses."""
    try:
        threads = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    return None if threads in (0, -1) else threads


@options_class
class ModelOptions(Options):
    """Which model, and how it computes."""

    model: str | None = _model(
        "-m",
        "--model",
        metavar="MODEL",
        help="GGUF file; or a name, see gen models. [$GEN_MODEL, the config, the bundled model]",
        is_path=True,
        completion_kind=CompletionKind.MODEL,
    )
    hub_repository: str | None = _model(
        "-hf",
        "-hfr",
        "--hf-repo",
        metavar="USER/REPO[:QUANT]",
        help="A model of Hugging Face; it is downloaded if it is not here.",
    )
    hub_file: str | None = _model("-hff", "--hf-file", metavar="FILE", help="Which file of the -hf model.")
    context_size: int | None = _model(
        "-c", "--ctx-size", help="Context in tokens; 0 = the model's. [4096]", limit=within(0, INT32_MAX)
    )
    threads: int | None = _model(
        "-t",
        "--threads",
        metavar="N",
        help="CPU threads; 0 or -1: the default. [the physical cores]",
        parse=_thread_count,
        limit=within(1, MAX_THREADS),
    )
    gpu_layers: int = _model(
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        metavar="N|all",
        help="Layers on the GPU; all or -1: all. [0]",
        default=0,
        parse=_layer_count,
        limit=within(-1, INT32_MAX),
    )
    split_mode: SplitMode | None = _model("-sm", "--split-mode", help="How several GPUs share the model. [layer]")
    main_gpu: int | None = _model(
        "-mg",
        "--main-gpu",
        metavar="N",
        help="The GPU of -sm none, or of intermediate results with row. [0]",
        limit=within(-1, INT32_MAX),
    )
    tensor_split: str | None = _model(
        "-ts", "--tensor-split", metavar="N,N,…", help="The share of each GPU, such as 3,1. [by free memory]"
    )
    batch_size: int = _model(
        "-b", "--batch-size", help="Prompt tokens at a time. [512]", default=512, limit=within(1, INT32_MAX)
    )
    batch_threads: int | None = _model(
        "-tb",
        "--threads-batch",
        metavar="N",
        help="CPU threads that read a prompt, likewise. [those of -t]",
        parse=_thread_count,
        limit=within(1, MAX_THREADS),
    )
    microbatch: int | None = _model(
        "-ub",
        "--ubatch-size",
        help="Tokens of a batch that are computed at once. [all]",
        limit=within(1, INT32_MAX),
    )
    flash_attention: FlashAttention = _model(
        "-fa",
        "--flash-attn",
        help="Flash attention; auto: if the model allows. [auto]",
        default=FlashAttention.auto,
        parse=make_switch_parser(FlashAttention, "on, off or auto"),
    )
    cache_type_k: CacheType = _model(
        "-ctk",
        "--cache-type-k",
        metavar="TYPE",
        help=f"The cache's keys: {_CACHE_TYPE_NAMES}. [f16]",
        default=_F16,
    )
    cache_type_v: CacheType = _model(
        "-ctv",
        "--cache-type-v",
        metavar="TYPE",
        help="Its values; a quantised type needs flash attention. [f16]",
        default=_F16,
    )
    rope_scaling: RopeScaling | None = _model("--rope-scaling", help="How RoPE is scaled. [the model's]")
    rope_scale: float | None = _model(
        "--rope-scale", metavar="N", help="Make the context N times longer by RoPE.", limit=POSITIVE
    )
    rope_freq_base: float | None = _model(
        "--rope-freq-base", metavar="N", help="RoPE's base frequency. [the model's]", limit=POSITIVE
    )
    rope_freq_scale: float | None = _model(
        "--rope-freq-scale", metavar="N", help="RoPE's frequencies times N, as --rope-scale 1/N.", limit=POSITIVE
    )
    override_kv: list[str] | None = _model(
        "--override-kv",
        metavar="KEY=TYPE:VALUE",
        help="Another value in the GGUF's metadata; int, float, bool or str; repeatable.",
    )
    lora: list[str] | None = _model(
        "--lora",
        metavar="FILE[=SCALE]",
        help="LoRA adapter; repeatable.",
        is_path=True,
        completion_kind=CompletionKind.GGUF_FILE,
    )
    mmap: bool | None = _model(
        "--mmap/--no-mmap",
        help="Map the file, or read the whole of it. [files of 16 to 500 MB are read, where Linux has huge pages]",
    )
    mlock: bool = _model("--mlock", help="Keep the model in RAM.", default=False)
    numa: NumaStrategy | None = _model(
        "--numa",
        metavar="distribute|isolate|numactl",
        help="Which NUMA nodes compute: all, the own one, or as numactl says.",
    )
    no_warmup: bool = _model("--no-warmup", help="As ever: gen makes no trial run.", default=False)

    @property
    def gpu_shares(self) -> tuple[float, ...]:
        """The numbers of ``--tensor-split``, empty without it. Raises ``UsageError``."""
        if self.tensor_split is None:
            return ()
        try:
            shares = tuple(float(part) for part in self.tensor_split.replace("/", ",").split(","))
        except ValueError:
            shares = ()
        if not (any(shares) and all(0 <= share < float("inf") for share in shares)):
            raise UsageError(f"-ts: {self.tensor_split!r} is not a list of numbers ≥ 0 with commas, such as 3,1")
        return shares

    @property
    def model_reference(self) -> str | None:
        """What names the model: the value of ``-m``, or that of ``-hf`` as ``-m`` would take it; None: neither."""
        if self.hub_repository is None:
            return self.model
        return f"hf:{self.hub_repository.removeprefix('hf:')}" + (f"/{self.hub_file}" if self.hub_file else "")

    @property
    def model_path(self) -> Path | None:
        """The value of ``-m`` as a path; None if it is not given."""
        return None if self.model is None else Path(self.model)

    def check(self) -> None:
        """Refuse two models, two factors of RoPE, shares that are no numbers, and a cache that cannot be made."""
        if self.hub_repository is not None and self.model is not None:
            raise UsageError("-m and -hf both name a model; give one")
        if self.hub_file is not None and self.hub_repository is None:
            raise UsageError("-hff names a file of a repository; give that with -hf USER/REPO")
        if self.rope_scale is not None and self.rope_freq_scale is not None:
            raise UsageError("--rope-scale and --rope-freq-scale set one factor; give one")
        _ = self.gpu_shares
        if self.flash_attention is FlashAttention.off and "q" in self.cache_type_v.value:
            raise UsageError(f"-ctv {self.cache_type_v.value} needs flash attention, and -fa off is given")


@options_class
class LogOptions(Options):
    """What llama.cpp says of itself."""

    verbose: bool = flag(
        "-v",
        "--verbose/--log-disable",
        "--log-verbose",
        help="llama.cpp's own log, on stderr. [--log-disable]",
        default=False,
        panel="Output",
    )


_cluster = partial(flag, panel="Cluster")
_LOCAL, _PREFIX = "ray", "ray:"
_DEFAULT_STALL_SECONDS = 600.0
_GPU_DECIMALS = 4
"""Of a part of a GPU: Ray knows no smaller parts."""


@options_class
class ClusterOptions(Options):
    """Where the work is done: in this process, or by workers of a Ray cluster."""

    on: str | None = _cluster(
        "--on", metavar="ray[:HOST[:PORT]]", help="ray: workers on this machine; ray:HOST: on that cluster."
    )
    workers: int | None = _cluster(
        "--workers", metavar="N", help="Workers, each with its own model. [as many as fit]", limit=at_least(1)
    )
    worker_cpus: int | None = _cluster(
        "--cpus-per-worker", metavar="N", help="CPUs and threads of each. [-t, or 2]", limit=at_least(1)
    )
    worker_gpus: float = _cluster(
        "--gpus-per-worker", metavar="N", help="GPUs of each; may be a part. [0]", default=0.0, limit=at_least(0)
    )
    stall_seconds: float = _cluster(
        "--stall",
        metavar="SECONDS",
        help="Replace a worker that makes no token for so long. [600]",
        default=_DEFAULT_STALL_SECONDS,
        limit=POSITIVE,
    )

    @property
    def address(self) -> str | None:
        """The head of the cluster, as HOST or HOST:PORT; None: a cluster on this machine."""
        return None if self.on is None or self.on == _LOCAL else self.on.removeprefix(_PREFIX)

    def check(self) -> None:
        """Refuse what cannot stand together."""
        if self.on is not None and self.on != _LOCAL:
            _check_place(self.on)
        if not _can_be_given(self.worker_gpus):
            raise UsageError(
                f"--gpus-per-worker: {self.worker_gpus:g} is neither a whole number nor a part of 1 "
                f"with at most {_GPU_DECIMALS} decimals"
            )
        flags = {
            "--workers": self.workers is not None,
            "--cpus-per-worker": self.worker_cpus is not None,
            "--gpus-per-worker": bool(self.worker_gpus),
            "--stall": self.stall_seconds != _DEFAULT_STALL_SECONDS,
        }
        given = [name for name, is_given in flags.items() if is_given]
        if given and self.on is None:
            raise UsageError(f"{given[0]} goes with --on")


_MAX_PORT = 65_535


def _check_place(text: str) -> None:
    """Refuse a value of ``--on`` that names no head of a cluster. Raises ``UsageError``."""
    address = text.removeprefix(_PREFIX)
    host, colon, port = address.rpartition(":") if ":" in address else (address, "", "")
    problem = f"--on: {text!r} is not ray, ray:HOST or ray:HOST:PORT"
    if (
        not text.startswith(_PREFIX)
        or not host.strip("[]")
        or any(sign in "/@" or sign.isspace() for sign in host)
    ):
        raise UsageError(problem)
    has_brackets = host.startswith("[") and host.endswith("]")
    if not has_brackets and any(sign in "[:]" for sign in host):
        raise UsageError(f"{problem}; an IPv6 address has brackets and a port, as ray:[::1]:6379")
    is_port = port.isascii() and port.isdecimal() and 1 <= int(port) <= _MAX_PORT
    if colon and not is_port:
        raise UsageError(f"--on: {text!r}: the port {port!r} is not within 1..{_MAX_PORT}")


def _can_be_given(gpus: float) -> bool:
    """True if Ray can give a worker so many GPUs: several only whole, of one also a part."""
    return gpus.is_integer() if gpus > 1 else gpus == round(gpus, _GPU_DECIMALS)

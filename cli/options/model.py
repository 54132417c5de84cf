"""The flags of the model, of llama.cpp's log, and of workers on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...common.errors import UsageError
from ...common.flags import POSITIVE, CompletionKind, at_least, within
from ...common.llama_cpp_limits import (
    CACHE_TYPES,
    FLASH_ATTENTION_MODES,
    INT32_MAX,
    MAX_THREADS,
    NUMA_STRATEGIES,
    ROPE_SCALINGS,
    SPLIT_MODES,
)
from ..flags import Options, flag, make_switch_parser

if TYPE_CHECKING:
    from ...engine.load_options import LoadOptions

_model = partial(flag, panel="Model")


# When to use flash attention; ``auto`` = if the model supports it
FlashAttention = StrEnum("FlashAttention", {name: name for name in FLASH_ATTENTION_MODES})  # type: ignore[misc]
# A data type of the cache of keys or values.
CacheType = StrEnum("CacheType", {name: name for name in CACHE_TYPES})  # type: ignore[misc]
# A method of scaling RoPE.
RopeScaling = StrEnum("RopeScaling", {name: name for name in ROPE_SCALINGS})  # type: ignore[misc]
# A way to divide a model among GPUs.
SplitMode = StrEnum("SplitMode", {name: name for name in SPLIT_MODES})  # type: ignore[misc]
# A way to use several NUMA nodes.
NumaStrategy = StrEnum("NumaStrategy", {name: name for name in NUMA_STRATEGIES})  # type: ignore[misc]
_F16 = CacheType("f16")
_CACHE_TYPE_NAMES = ", ".join(CACHE_TYPES)
# the words for numbers of layers, and llama.cpp's numbers for them
_LAYER_WORDS = {"auto": "auto", "-1": "auto", "all": "all", "-2": "all"}


def _layer_count(text: str) -> str:
    """Return a number of layers, ``auto`` or ``all``."""
    is_short = len(text) <= len(str(INT32_MAX))
    is_count = is_short and text.isascii() and text.isdecimal() and int(text) <= INT32_MAX
    if text not in _LAYER_WORDS and not is_count:
        raise ValueError(f"{text!r} is not auto (-1), all (-2) or an integer within 0..{INT32_MAX}")
    return _LAYER_WORDS.get(text, text)


# the flags of options whose values can be wrong beside other values, or on this machine
FLAGS_BY_OPTION = {
    "cache_type_v": "-ctv",
    "devices": "-dev",
    "gpu_layers": "-ngl",
    "main_gpu": "-mg",
    "tensor_split": "-ts",
}


def _print_devices() -> None:
    from ..render.devices import print_devices

    print_devices()


def _thread_count(text: str) -> int | None:
    """Return a number of threads; None for 0 and -1, which stand for the default number in llama.cpp."""
    try:
        threads = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an integer") from None
    return None if threads in (0, -1) else threads


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The flags that choose a model and configure its computation."""

    model: str | None = _model(
        "-m",
        "--model",
        metavar="MODEL",
        help="GGUF file, or a name that gen models lists. [$GEN_MODEL, the config, or the bundled model]",
        is_path=True,
        completion_kind=CompletionKind.MODEL,
    )
    hub_repository: str | None = _model(
        "-hf",
        "-hfr",
        "--hf-repo",
        metavar="USER/REPO[:QUANT]",
        help="Model on Hugging Face; downloaded if it is not on this machine.",
    )
    hub_file: str | None = _model(
        "-hff", "--hf-file", metavar="FILE", help="File in the repository that -hf names."
    )
    context_size: int | None = _model(
        "-c",
        "--ctx-size",
        help="Context length in tokens; 0 = the length the model was trained with. [4096]",
        limit=within(0, INT32_MAX),
    )
    threads: int | None = _model(
        "-t",
        "--threads",
        metavar="N",
        help="CPU threads; 0 or -1 = default. [number of physical cores]",
        parse=_thread_count,
        limit=within(1, MAX_THREADS),
    )
    gpu_layers: str = _model(
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        metavar="auto|all|N",
        help="Number of layers on the GPU; auto = as many as fit. [auto]",
        default="auto",
        parse=_layer_count,
    )
    device: str | None = _model(
        "-dev",
        "--device",
        metavar="NAME,…|none",
        help="GPUs to use, see --list-devices; none = the CPU alone. [all]",
    )
    list_devices: bool = _model(
        "--list-devices", help="Print the GPUs with their memory, and exit.", default=False, action=_print_devices
    )
    cpu_moe: bool = _model(
        "-cmoe",
        "--cpu-moe",
        help="Keep the experts of all layers in the CPU's memory.",
        default=False,
    )
    cpu_moe_layers: int | None = _model(
        "-ncmoe",
        "--n-cpu-moe",
        metavar="N",
        help="Keep the experts of the first N layers in the CPU's memory.",
        limit=within(0, INT32_MAX),
    )
    split_mode: SplitMode | None = _model(
        "-sm", "--split-mode", help="How to divide the model among several GPUs. [layer]"
    )
    main_gpu: int | None = _model(
        "-mg",
        "--main-gpu",
        metavar="N",
        help="The GPU for -sm none, or for intermediate results with -sm row. [0]",
        limit=within(-1, INT32_MAX),
    )
    tensor_split: str | None = _model(
        "-ts",
        "--tensor-split",
        metavar="N,N,…",
        help="Shares of the model on each GPU, such as 3,1. [by free memory]",
    )
    batch_size: int = _model(
        "-b",
        "--batch-size",
        help="Maximum number of prompt tokens per batch. [512]",
        default=512,
        limit=within(1, INT32_MAX),
    )
    batch_threads: int | None = _model(
        "-tb",
        "--threads-batch",
        metavar="N",
        help="CPU threads for reading the prompt; 0 or -1 = default. [same as -t]",
        parse=_thread_count,
        limit=within(1, MAX_THREADS),
    )
    microbatch: int | None = _model(
        "-ub",
        "--ubatch-size",
        help="Maximum number of tokens of a batch computed at a time. [same as -b]",
        limit=within(1, INT32_MAX),
    )
    flash_attention: FlashAttention = _model(
        "-fa",
        "--flash-attn",
        help="Use flash attention; auto = if the model supports it. [auto]",
        default=FlashAttention("auto"),
        parse=make_switch_parser(FlashAttention, "on, off or auto"),
    )
    cache_type_k: CacheType = _model(
        "-ctk",
        "--cache-type-k",
        metavar="TYPE",
        help=f"Data type of the K cache: {_CACHE_TYPE_NAMES}. [f16]",
        default=_F16,
    )
    cache_type_v: CacheType = _model(
        "-ctv",
        "--cache-type-v",
        metavar="TYPE",
        help="Data type of the V cache; a quantized type needs flash attention. [f16]",
        default=_F16,
    )
    rope_scaling: RopeScaling | None = _model("--rope-scaling", help="Method of scaling RoPE. [the model's]")
    rope_scale: float | None = _model(
        "--rope-scale",
        metavar="N",
        help="Extend the context by the factor N through RoPE scaling. [the model's]",
        limit=POSITIVE,
    )
    rope_freq_base: float | None = _model(
        "--rope-freq-base", metavar="N", help="Base frequency of RoPE. [the model's]", limit=POSITIVE
    )
    rope_freq_scale: float | None = _model(
        "--rope-freq-scale",
        metavar="N",
        help="Multiply the frequencies of RoPE by N, like --rope-scale 1/N. [the model's]",
        limit=POSITIVE,
    )
    override_kv: list[str] | None = _model(
        "--override-kv",
        metavar="KEY=TYPE:VALUE",
        help="Replace a value of the GGUF's metadata; TYPE: int, float, bool or str; repeatable.",
    )
    lora: list[str] | None = _model(
        "--lora",
        metavar="FILE[=SCALE]",
        help="Apply a LoRA adapter; repeatable. [SCALE: 1]",
        is_path=True,
        completion_kind=CompletionKind.GGUF_FILE,
    )
    mmap: bool | None = _model(
        "--mmap/--no-mmap", help="Map the file into memory, or read it. [read up to 500 MB on a CPU, else map]"
    )
    mlock: bool = _model("--mlock", help="Keep the model in RAM, never in swap space.", default=False)
    numa: NumaStrategy | None = _model(
        "--numa",
        metavar="distribute|isolate|numactl",
        help="NUMA nodes to use: all, the current one, or those set by numactl.",
    )
    no_warmup: bool = _model(
        "--no-warmup", help="Accepted for llama.cpp compatibility; gen never does a warm-up run.", default=False
    )

    @property
    def devices(self) -> tuple[str, ...] | None:
        """The names of ``--device``; empty for ``none``, None without the flag."""
        if self.device is None:
            return None
        names = tuple(name.strip() for name in self.device.split(","))
        if names == ("none",):
            return ()
        if "none" in names or "" in names:
            raise UsageError(f"-dev: {self.device!r} is not none or a comma-separated list of names")
        return names

    @property
    def gpu_shares(self) -> tuple[float, ...]:
        """The numbers of ``--tensor-split``; empty without the flag."""
        if self.tensor_split is None:
            return ()
        numbers = self.tensor_split.replace("/", ",").split(",")
        try:
            shares = tuple(float(number) for number in numbers)
        except ValueError:
            shares = ()
        are_valid = any(shares) and all(0 <= share < float("inf") for share in shares)
        if not are_valid:
            raise UsageError(
                f"-ts: {self.tensor_split!r} is not a comma-separated list of numbers ≥ 0, such as 3,1"
            )
        return shares

    @property
    def model_reference(self) -> str | None:
        """The value of ``-m``, or of ``-hf`` and ``-hff`` in the form of ``-m``; None if neither is given."""
        if self.hub_repository is None:
            return self.model
        repository = f"hf:{self.hub_repository.removeprefix('hf:')}"
        return f"{repository}/{self.hub_file}" if self.hub_file else repository

    @property
    def model_path(self) -> Path | None:
        """The value of ``-m`` as a path; None if ``-m`` is not given."""
        return None if self.model is None else Path(self.model)

    def load_options(self) -> LoadOptions:
        """Return what the flags say about loading. Raises ``UsageError``."""
        from ...engine.load_options import LoadOptions

        rope_freq_scale = self.rope_freq_scale
        if self.rope_scale is not None:
            rope_freq_scale = 1 / self.rope_scale
        return LoadOptions(
            n_ctx=self.context_size,
            threads=self.threads,
            batch_threads=self.batch_threads,
            batch=self.batch_size,
            microbatch=self.microbatch,
            flash_attention=self.flash_attention.value,
            cache_type_k=self.cache_type_k.value,
            cache_type_v=self.cache_type_v.value,
            rope_scaling=None if self.rope_scaling is None else self.rope_scaling.value,
            rope_freq_base=self.rope_freq_base,
            rope_freq_scale=rope_freq_scale,
            gpu_layers=int(self.gpu_layers) if self.gpu_layers.isdecimal() else self.gpu_layers,
            devices=self.devices,
            cpu_expert_layers="all" if self.cpu_moe else self.cpu_moe_layers or 0,
            split_mode="layer" if self.split_mode is None else self.split_mode.value,
            main_gpu=self.main_gpu or 0,
            tensor_split=self.gpu_shares,
            mmap=self.mmap,
            mlock=self.mlock,
            lora=[_read_adapter(text) for text in self.lora or ()],
            overrides=read_overrides(self.override_kv or ()),
        )

    def check(self) -> None:
        """Raise ``UsageError`` for flags that exclude each other, and for wrong lists."""
        from ...models.errors import ModelError

        if self.hub_repository is not None and self.model is not None:
            raise UsageError("-m and -hf both name a model; give only one")
        if self.hub_file is not None and self.hub_repository is None:
            raise UsageError("-hff names a file in a repository; name the repository with -hf USER/REPO")
        if self.rope_scale is not None and self.rope_freq_scale is not None:
            raise UsageError("--rope-scale and --rope-freq-scale set the same factor; give only one")
        try:
            self.load_options()
        except ModelError as error:
            flag = FLAGS_BY_OPTION.get(error.origin, error.origin)
            raise UsageError.of(error).at(flag) from None


def _read_adapter(text: str) -> tuple[str, float]:
    """Return file and scale of ``FILE=SCALE``. The default scale is 1."""
    path, equals_sign, scale = text.rpartition("=")
    if not equals_sign:
        return text, 1.0
    try:
        return path, float(scale)
    except ValueError:
        return text, 1.0  # no number follows the last =, so = is part of the file's name


Value = int | float | bool | str
_PARSERS: Mapping[str, Callable[[str], Value]] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text],
    "str": str,
}


def read_overrides(texts: Iterable[str]) -> dict[str, Value]:
    """Return the values of all ``KEY=TYPE:VALUE,…``, by key. Raises ``UsageError``."""
    value_of_key = {}
    for text in texts:
        for item in text.split(","):
            key, _, type_and_value = item.partition("=")
            type_name, _, value = type_and_value.partition(":")
            try:
                value_of_key[key] = _PARSERS[type_name](value)
            except (KeyError, ValueError):
                raise UsageError(
                    f"--override-kv: {item!r} is not KEY=TYPE:VALUE with int, float, bool (true, false) or str"
                ) from None
    return value_of_key


@dataclass(frozen=True, kw_only=True)
class LogOptions(Options):
    """The flag of llama.cpp's log."""

    verbose: bool = flag(
        "-v",
        "--verbose/--no-verbose",
        "--log-verbose/--log-disable",
        help="Print llama.cpp's log on stderr.",
        default=False,
        panel="Output",
    )


_cluster = partial(flag, panel="Cluster")
_LOCAL_CLUSTER = "ray"
_ADDRESS_PREFIX = "ray:"
_DEFAULT_STALL_SECONDS = 600.0
_GPU_DECIMALS = 4  # number of decimals of a fraction of a GPU that Ray supports


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(Options):
    """The flags that distribute work to the workers of a Ray cluster."""

    on: str | None = _cluster(
        "--on",
        metavar="ray[:HOST[:PORT]]",
        help="Distribute the work with Ray: ray = workers on this machine; ray:HOST = workers on that cluster.",
    )
    workers: int | None = _cluster(
        "--workers",
        metavar="N",
        help="Number of workers, each of which loads the model. [as many as fit]",
        limit=at_least(1),
    )
    worker_cpus: int | None = _cluster(
        "--cpus-per-worker",
        metavar="N",
        help="Number of CPUs and threads per worker. [-t, or 2]",
        limit=at_least(1),
    )
    worker_gpus: float = _cluster(
        "--gpus-per-worker",
        metavar="N",
        help="Number of GPUs per worker, or a fraction of one. [0]",
        default=0.0,
        limit=at_least(0),
    )
    stall_seconds: float = _cluster(
        "--stall",
        metavar="SECONDS",
        help="Replace a worker that generates no token for this many seconds. [600]",
        default=_DEFAULT_STALL_SECONDS,
        limit=POSITIVE,
    )

    @property
    def address(self) -> str | None:
        """The address of the cluster's head node, as HOST or HOST:PORT; None for a cluster on this machine."""
        if self.on is None or self.on == _LOCAL_CLUSTER:
            return None
        return self.on.removeprefix(_ADDRESS_PREFIX)

    def check(self) -> None:
        if self.on is not None and self.on != _LOCAL_CLUSTER:
            _check_cluster_address(self.on)
        if not _is_gpu_count(self.worker_gpus):
            raise UsageError(
                f"--gpus-per-worker: {self.worker_gpus:g} is not an integer or a fraction of 1 "
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
            raise UsageError(f"{given[0]} needs --on")


_MAX_PORT = 65_535


def _check_cluster_address(text: str) -> None:
    """Raise ``UsageError`` for a value of ``--on`` that is not the address of a cluster."""
    problem = f"--on: {text!r} is not ray, ray:HOST or ray:HOST:PORT"
    if not text.startswith(_ADDRESS_PREFIX):
        raise UsageError(problem)
    address = text.removeprefix(_ADDRESS_PREFIX)
    has_port = ":" in address
    host, _, port = address.rpartition(":") if has_port else (address, "", "")
    has_forbidden_character = any(character in "/@" or character.isspace() for character in host)
    if not host.strip("[]") or has_forbidden_character:
        raise UsageError(problem)
    has_brackets = host.startswith("[") and host.endswith("]")
    if not has_brackets and any(character in "[:]" for character in host):
        raise UsageError(f"{problem}; write an IPv6 address with brackets and a port, such as ray:[::1]:6379")
    is_port_valid = port.isascii() and port.isdecimal() and 1 <= int(port) <= _MAX_PORT
    if has_port and not is_port_valid:
        raise UsageError(f"--on: {text!r}: the port {port!r} is not within 1..{_MAX_PORT}")


def _is_gpu_count(gpus: float) -> bool:
    """Return whether Ray can reserve this many GPUs for a worker: an integer, or a fraction of one GPU."""
    if gpus > 1:
        return gpus.is_integer()
    return gpus == round(gpus, _GPU_DECIMALS)

"""Workers that each load a model: what they need, and what they tell of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...cluster.connection import connected
from ...cluster.run import ClusterRun, ClusterRunOptions
from ...cluster.tasks import ServiceFactory, ServicePlan
from ...cluster.worker import WorkerNeeds
from ...common.machine import machine
from ...engine.generation import versions
from ...engine.model import Model
from ...engine.native.binding import llama_cpp_build
from ...engine.native.options import estimate_memory, physical_cores
from ...models.errors import ModelError
from ...models.names import first_part
from ..batch.batch_settings import ModelDescription, describe_model
from ..errors import note
from ..inputs.model import ModelSpec, with_origin
from ..interrupt import Interrupt
from ..options.cluster import ClusterOptions
from .admission import Admission

_DEFAULT_CPUS = 2


@dataclass(frozen=True)
class WorkerLayout:
    """How the workers of a run are laid out.

    Attributes: ``options``: the flags; ``model``: as a worker loads it; ``sequences``: how many it decodes at a
    time; ``shard_size``: how many tasks it gets at once.
    """

    options: ClusterOptions
    model: ModelSpec
    sequences: int
    shard_size: int

    @property
    def needs(self) -> WorkerNeeds:
        """What a worker takes of its node. Raises ``ModelError``."""
        threads: int = self.model.arguments["threads"]
        memory = estimate_memory(self.model.path, self.sequences, self.model.arguments["n_ctx"])
        return WorkerNeeds(self.options.worker_cpus or threads, self.options.worker_gpus, memory)


def model_for_workers(spec: ModelSpec, options: ClusterOptions) -> ModelSpec:
    """Return the model as a worker loads it: by whole paths, with a worker's threads, and mapped.

    The workers of one machine share the memory of a file that is mapped.
    Links are not followed: a model is called by the name of its link, and the parts of one that is split are found
    beside it.
    """
    threads = spec.arguments["threads"] or options.worker_cpus or min(_DEFAULT_CPUS, physical_cores())
    lora = [(str(Path(file).absolute()), scale) for file, scale in spec.arguments["lora"]]
    is_mapped = spec.arguments.get("mmap") is not False
    arguments = {**spec.arguments, "threads": threads, "lora": lora, "mmap": is_mapped}
    return replace(spec, path=first_part(spec.path.absolute()), arguments=arguments)


@contextmanager
def model_workers(layout: WorkerLayout, service: ServiceFactory, admission: Admission) -> Iterator[ClusterRun]:
    """Connect to the cluster, and start workers, while inside.

    Raises ``ClusterError``, ``ModelError``.

    Args:
        layout: how they are laid out.
        service: makes the service of each.
        admission: says which of them may join.
    """
    flags = layout.options
    options = ClusterRunOptions(flags.workers, layout.needs, layout.shard_size, flags.stall_seconds)
    with connected(flags.address) as watch:
        run = ClusterRun(options, ServicePlan(service, layout.model.files), admission, note, watch)
        try:
            yield run
        except ModelError as error:
            raise with_origin(error, layout.model.origin) from None
        finally:
            run.close()
    if admission.has_other_kernels:
        note("the workers' processors compute logits that differ in the last bits")


def wait_for_model(run: ClusterRun, interrupt: Interrupt) -> ModelDescription:
    """Wait until a worker has loaded the model, and knows it."""
    while True:
        facts = run.wait_for_worker()
        interrupt.raise_if_requested()
        if facts is not None:
            model: ModelDescription = facts["model"]
            return model


def worker_facts(model: Model) -> dict[str, Any]:
    """What a worker tells the driver: its model, what it computes with, and versions. Raises ``ModelError``."""
    return {
        "model": describe_model(model),
        "kernels": model.kernel_digest(),
        "worker": worker_description(model),
        "versions": versions(),
    }


def worker_description(model: Model) -> dict[str, Any]:
    """What results say of the worker that computed them."""
    build = llama_cpp_build()
    return {
        "cpu": machine()["cpu"],
        "build": f"llama-cpp-python {build.binding_version}, {build.system_info}",
        "threads": model.threads,
    }

"""The workers of a Ray cluster that the flags ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..messages import note
from ..options.model import ClusterOptions
from .model import with_origin

if TYPE_CHECKING:
    from ...cluster.run import ClusterRun
    from ...cluster.tasks import ServiceFactory
    from ...models.names import ModelSpec


@contextmanager
def cluster_workers(
    options: ClusterOptions,
    spec: ModelSpec,
    service: ServiceFactory,
    sequences: int,
    shard_size: int,
    *,
    needs_same_kernels: bool = False,
) -> Iterator[ClusterRun]:
    """Start the workers, while inside. Raises ``ClusterError``, ``ModelError``.

    Args:
        options: the flags.
        spec: the model, see `model_for_workers`.
        service: makes the service of each worker.
        sequences: how many a worker decodes at a time.
        shard_size: how many tasks it gets at once.
        needs_same_kernels: refuse a worker whose processor computes other logits than the first one's.
    """
    from ...cluster.run import ClusterRunOptions
    from ...jobs.workers import model_workers, worker_needs
    from ...models.errors import ModelError

    needs = worker_needs(spec, sequences, options.worker_cpus, options.worker_gpus)
    run_options = ClusterRunOptions(options.workers, needs, shard_size, options.stall_seconds)
    workers = model_workers(
        options.address,
        run_options,
        spec,
        service,
        needs_same_kernels=needs_same_kernels,
        note=note,
    )
    try:
        with workers as run:
            yield run
    except ModelError as error:
        raise with_origin(error, spec.origin) from None

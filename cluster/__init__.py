"""Tasks on a cluster of Ray's: workers that may die, results that come once. Knows nothing of models."""

from __future__ import annotations

from .cluster_run import ClusterRun, ClusterRunOptions
from .connection import connected
from .errors import ClusterError
from .placement import WorkerNeeds
from .tasks import FindFile, Service, ServiceFactory, ServicePlan, Task, TaskResult
from .worker import WorkerStatus

__all__ = [
    "ClusterError",
    "ClusterRun",
    "ClusterRunOptions",
    "FindFile",
    "Service",
    "ServiceFactory",
    "ServicePlan",
    "Task",
    "TaskResult",
    "WorkerNeeds",
    "WorkerStatus",
    "connected",
]

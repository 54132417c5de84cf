"""A driver of tasks on a connected cluster, for tests of lost workers and nodes."""

from logitsmith.cluster.run import ClusterRun, ClusterRunOptions
from logitsmith.cluster.tasks import ServicePlan, Task
from logitsmith.cluster.worker import WorkerNeeds

NEEDS = WorkerNeeds(cpus=1, gpus=0, memory_bytes=10**8)


class Driver:
    """Runs tasks, and records the reports."""

    def __init__(
        self,
        head_monitor,
        factory,
        *,
        workers=2,
        stall=60,
        size=4,
        reject=lambda facts: None,
        files=(),
    ):
        self.reports = []
        options = ClusterRunOptions(workers, NEEDS, size, stall)
        self.run = ClusterRun(options, ServicePlan(factory, files), reject, self.reports.append, head_monitor)

    def wait(self):
        while True:
            facts = self.run.wait_for_worker()
            if facts is not None:
                return facts

    def results(self, contents, on_result=lambda count: None):
        results = {}
        tasks = (Task(str(number), content) for number, content in enumerate(contents))
        for result in self.run.results(tasks, lambda: False):
            if result is not None:
                assert result.key not in results
                results[result.key] = result.content
                on_result(len(results))
        self.run.close()
        return [results[str(number)] for number in range(len(results))]

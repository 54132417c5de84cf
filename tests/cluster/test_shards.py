"""Shards: each task is done once, and a task that crashes its workers is found."""

from itertools import chain, repeat

import pytest
from hypothesis import given, strategies as st
from logitsmith.cluster.tasks import Shard, ShardQueue, Task


def tasks(count):
    return [Task(str(number), number) for number in range(count)]


def keys(shard):
    return [task.key for task in shard.tasks]


def test_new_shards_are_as_large_as_they_may_be():
    queue = ShardQueue(iter(tasks(5)), 2)
    assert [keys(queue.next(may_have_crashed_worker=True)) for _ in range(3)] == [["0", "1"], ["2", "3"], ["4"]]
    assert queue.next(may_have_crashed_worker=True) is None
    assert queue.is_exhausted


def test_the_queue_does_not_wait_for_tasks_that_have_not_arrived():
    arriving = chain(tasks(1), [None], tasks(3)[1:], repeat(None))
    queue = ShardQueue(arriving, 4)
    assert keys(queue.next(may_have_crashed_worker=True)) == ["0"]
    assert keys(queue.next(may_have_crashed_worker=True)) == ["1", "2"]
    assert queue.next(may_have_crashed_worker=True) is None
    assert not queue.is_exhausted
    queue.stop()
    assert queue.is_exhausted


def test_returned_shards_precede_new_ones_and_crashed_ones_need_an_idle_worker():
    queue = ShardQueue(iter(tasks(6)), 2)
    first, second = (queue.next(may_have_crashed_worker=True) for _ in range(2))
    assert queue.requeue_after_crash(first) is None
    queue.requeue(second)
    assert keys(queue.next(may_have_crashed_worker=False)) == ["2", "3"]
    assert keys(queue.next(may_have_crashed_worker=False)) == ["4", "5"]
    assert queue.next(may_have_crashed_worker=False) is None
    crashed = queue.next(may_have_crashed_worker=True)
    assert (keys(crashed), crashed.crash_count) == (["0", "1"], 1)


def test_the_second_crash_splits_a_shard_and_the_third_gives_up_a_single_task():
    queue = ShardQueue(iter(()), 1)
    assert queue.requeue_after_crash(Shard(tuple(tasks(3)), crash_count=1)) is None
    halves = [queue.next(may_have_crashed_worker=True) for _ in range(2)]
    assert [(keys(half), half.crash_count) for half in halves] == [(["0"], 2), (["1", "2"], 2)]
    assert queue.requeue_after_crash(halves[0]).key == "0"


@pytest.mark.parametrize("size", [1, 2, 7, 8])
@given(
    count=st.integers(0, 30),
    poisoned=st.sets(st.integers(0, 29), max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_each_task_has_one_result_and_only_a_poisoned_one_is_given_up(size, count, poisoned, order):
    """Workers get two shards, as from the driver. A worker crashes if one of its tasks is poisoned."""
    queue = ShardQueue(iter(tasks(count)), size)
    answered, given_up = [], []
    for _ in range(1000):
        held = []
        while len(held) < 2 and not any(shard.has_crashed_worker for shard in held):
            shard = queue.next(may_have_crashed_worker=not held)
            if shard is None:
                break
            held.append(shard)
        if not held:
            break
        order.shuffle(held)
        for shard in held:
            if any(task.content in poisoned for other in held for task in other.tasks):
                failed_task = queue.requeue_after_crash(shard)
                given_up += [] if failed_task is None else [failed_task.content]
            else:
                answered += [task.content for task in shard.tasks]
    assert queue.is_exhausted
    expected = {number for number in poisoned if number < count}
    assert sorted(given_up) == sorted(expected)
    assert sorted(answered) == sorted(set(range(count)) - expected)

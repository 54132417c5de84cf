"""The clock of the workers stops while the driver does not check them."""

from logitsmith.cluster.run import PollClock


def test_a_suspended_driver_counts_no_stall():
    times = iter([100.0, 100.5, 101.0, 4000.0, 4000.5])
    clock = PollClock(lambda: next(times))
    seen = []
    for _ in range(4):
        clock.tick()
        seen.append(clock.now)
    assert seen == [0.5, 1.0, 3.0, 3.5]

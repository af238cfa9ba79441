"""The budget on a clock that the test moves."""

import asyncio
import contextlib

import pytest

from poolsm_runners.budget import Backoff, Budget, Limits, Priority

P = Priority


class ManualClock:
    """Time that passes only when it is told to."""

    def __init__(self):
        self.ms = 1_000_000
        self.sleepers = []

    def now_ms(self):
        return self.ms

    def elapsed_ms(self):
        return self.ms

    def step_ms(self):
        return 0

    async def sleep(self, seconds):
        until = self.ms + seconds * 1000
        waiting = asyncio.get_running_loop().create_future()
        self.sleepers.append((until, waiting))
        await waiting

    async def pass_s(self, seconds):
        self.ms += round(seconds * 1000)
        for until, waiting in list(self.sleepers):
            if until <= self.ms:
                self.sleepers.remove((until, waiting))
                if not waiting.done():
                    waiting.set_result(None)
        await settle()


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


class Caller:
    """Calls that hold their slot until they are told to end; ``order`` is who got one when."""

    def __init__(self, budget):
        self.budget = budget
        self.order = []
        self.holding = {}
        self.tasks = {}

    async def start(self, name, priority, pool=""):
        self.tasks[name] = asyncio.create_task(self._call(name, priority, pool))
        await settle()

    async def _call(self, name, priority, pool):
        async with self.budget.slot(priority, pool):
            self.order.append(name)
            self.holding[name] = asyncio.Event()
            try:
                await self.holding[name].wait()
            finally:
                del self.holding[name]

    async def end(self, *names):
        for name in names or list(self.holding):
            self.holding[name].set()
        await settle()

    async def drain(self):
        while self.holding:
            await self.end(next(iter(self.holding)))


@pytest.fixture
def clock():
    return ManualClock()


def make(clock, *, chance=1.0, **limits):
    budget = Budget(clock, Limits(**limits), chance=lambda: chance)
    return budget, Caller(budget)


async def test_a_listing_never_waits_behind_creates(clock):
    _, caller = make(clock, read_slots=1, write_slots=2, pool_share=1)
    for n in range(5):
        await caller.start(f"create-{n}", P.CREATE, "a")
    await caller.start("listing", P.READ)
    assert caller.order == ["create-0", "create-1", "listing"]
    await caller.drain()


async def test_no_more_than_the_slots_at_once(clock):
    budget, caller = make(clock, read_slots=2, write_slots=3, pool_share=1)
    for n in range(10):
        await caller.start(f"r{n}", P.READ)
        await caller.start(f"w{n}", P.WRITE, f"pool-{n}")
    assert len(caller.holding) == 5
    assert budget.usage().in_flight == {"read": 2, "write": 3}
    assert budget.usage().waiting == {"read": 8, "write": 7}
    await caller.drain()
    assert len(caller.order) == 20
    assert set(budget.usage().in_flight.values()) == {0}
    assert set(budget.usage().waiting.values()) == {0}


async def test_the_more_urgent_first(clock):
    _, caller = make(clock, write_slots=1)
    await caller.start("first", P.CREATE, "x")
    for priority in (P.CREATE, P.WRITE, P.CLAIM):
        await caller.start(priority.name, priority, "a")
    await caller.drain()
    assert caller.order == ["first", "CLAIM", "WRITE", "CREATE"]


async def test_pools_take_turns(clock):
    _, caller = make(clock, write_slots=1)
    await caller.start("first", P.CREATE, "x")
    for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
        await caller.start(name, P.CREATE, name[0])
    await caller.drain()
    assert caller.order == ["first", "a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_pool_that_comes_back_waits_for_its_turn(clock):
    _, caller = make(clock, write_slots=1)
    await caller.start("a1", P.CREATE, "a")
    await caller.start("b1", P.CREATE, "b")
    await caller.start("a2", P.CREATE, "a")
    await caller.start("b2", P.CREATE, "b")
    await caller.drain()
    assert caller.order == ["a1", "b1", "a2", "b2"]


async def test_a_pool_whose_calls_hang_leaves_slots_to_the_others(clock):
    _, caller = make(clock, write_slots=4, pool_share=0.5)
    for n in range(6):
        await caller.start(f"hang-{n}", P.CLAIM, "a")
    for n in range(3):
        await caller.start(f"b{n}", P.CREATE, "b")
    assert caller.order == ["hang-0", "hang-1", "b0", "b1"]
    await caller.end("b0")
    assert caller.order[-1] == "b2"
    await caller.end("hang-0")
    assert caller.order[-1] == "hang-2"
    await caller.drain()


async def test_a_share_is_at_least_one_slot(clock):
    assert Limits(write_slots=1, pool_share=0.1).per_pool == 1
    assert Limits(write_slots=8, pool_share=0.5).per_pool == 4


@pytest.mark.parametrize("status", [429, 413, 503])
async def test_a_busy_cloud_pauses_all_but_reads(clock, status):
    budget, caller = make(clock)
    budget.note(P.CREATE, status, retry_after_s=5)
    await caller.start("read", P.READ)
    await caller.start("create", P.CREATE, "a")
    await caller.start("claim", P.CLAIM, "b")
    assert caller.order == ["read"]
    await clock.pass_s(4.9)
    assert caller.order == ["read"]
    assert budget.usage().writes_paused_s == pytest.approx(0.1)
    await clock.pass_s(0.1)
    assert caller.order == ["read", "claim", "create"]
    await caller.drain()


async def test_calls_that_run_are_not_disturbed_by_a_pause(clock):
    budget, caller = make(clock, write_slots=1)
    await caller.start("a", P.WRITE)
    await caller.start("b", P.WRITE)
    budget.note(P.WRITE, 429, retry_after_s=5)
    await caller.end("a")
    assert caller.order == ["a"]
    await clock.pass_s(5)
    assert caller.order == ["a", "b"]
    await caller.drain()


async def test_a_pause_grows_while_others_wait(clock):
    budget, caller = make(clock)
    budget.note(P.WRITE, 429, retry_after_s=5)
    await caller.start("a", P.WRITE)
    await clock.pass_s(4)
    budget.note(P.WRITE, 503, retry_after_s=10)
    budget.note(P.WRITE, 503, retry_after_s=1)  # never shorter
    await clock.pass_s(9)
    assert caller.order == []
    await clock.pass_s(1)
    assert caller.order == ["a"]
    await caller.drain()


async def test_busy_reads_pause_reads_too_but_not_for_long(clock):
    budget, caller = make(clock, read_pause_limit_s=30, pause_limit_s=600)
    budget.note(P.READ, 429, retry_after_s=3600)
    await caller.start("read", P.READ)
    await caller.start("write", P.WRITE)
    assert caller.order == []
    await clock.pass_s(30)
    assert caller.order == ["read"]
    await clock.pass_s(569)
    assert caller.order == ["read"]
    await clock.pass_s(1)
    assert caller.order == ["read", "write"]
    await caller.drain()


async def test_without_retry_after_pauses_double_until_something_works(clock):
    budget, _ = make(clock, pause_base_s=1, pause_limit_s=10)
    seen = []
    for _ in range(6):
        budget.note(P.CREATE, 503)
        seen.append(budget.usage().writes_paused_s)
        await clock.pass_s(seen[-1])
    assert seen == [1, 2, 4, 8, 10, 10]
    budget.note(P.READ, 200)  # says nothing about writes
    budget.note(P.CREATE, 500)
    budget.note(P.CREATE, None, transport_error="timeout")
    budget.note(P.CREATE, 503)
    assert budget.usage().writes_paused_s == 10
    await clock.pass_s(10)
    budget.note(P.CREATE, 202)
    budget.note(P.CREATE, 503)
    assert budget.usage().writes_paused_s == 1


async def test_a_cloud_that_was_away_for_hours_is_asked_within_a_minute_of_its_return(clock):
    budget, _ = make(clock)
    for _ in range(100):
        budget.note(P.READ, 503)
        await clock.pass_s(60)
    budget.note(P.READ, 503)
    assert budget.usage().reads_paused_s <= 30
    assert budget.usage().writes_paused_s <= 30
    await clock.pass_s(30)
    for _ in range(100):
        budget.note(P.CREATE, 503)
        await clock.pass_s(budget.usage().writes_paused_s)
    budget.note(P.CREATE, 503)
    assert budget.usage().writes_paused_s <= 60
    assert budget.usage().reads_paused_s == 0


async def test_a_burst_of_busy_answers_is_one_step(clock):
    budget, _ = make(clock, pause_base_s=1)
    for _ in range(8):  # calls that were all under way when the cloud went
        budget.note(P.CREATE, 503)
    assert budget.usage().writes_paused_s == 1
    await clock.pass_s(1)
    for _ in range(8):
        budget.note(P.CREATE, 503)
    assert budget.usage().writes_paused_s == 2


async def test_the_pauses_jitter_between_half_and_whole(clock):
    budget, _ = make(clock, chance=0.0, pause_base_s=8)
    budget.note(P.CREATE, 503)
    assert budget.usage().writes_paused_s == 4


async def test_retry_after_zero_is_no_pause(clock):
    budget, caller = make(clock)
    budget.note(P.CREATE, 503, retry_after_s=0)
    await caller.start("a", P.CREATE)
    assert caller.order == ["a"]
    await caller.drain()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 500, 502, 504])
async def test_other_answers_pause_nothing(clock, status):
    budget, _ = make(clock)
    budget.note(P.CREATE, status, retry_after_s=60)
    assert budget.usage().writes_paused_s == 0


async def test_one_who_waits_may_give_up(clock):
    budget, caller = make(clock, write_slots=1)
    await caller.start("a", P.WRITE, "p")
    await caller.start("b", P.WRITE, "p")
    await caller.start("c", P.WRITE, "p")
    caller.tasks["b"].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await caller.tasks["b"]
    assert budget.usage().waiting == {"write": 1}
    await caller.drain()
    assert caller.order == ["a", "c"]


async def test_a_slot_granted_to_one_who_just_gave_up_goes_on(clock):
    budget, caller = make(clock, write_slots=1)
    await caller.start("a", P.WRITE, "p")
    await caller.start("b", P.WRITE, "q")
    await caller.start("c", P.WRITE, "r")
    # In one turn of the loop: the slot is granted to b, and b is cancelled.
    caller.holding["a"].set()
    await asyncio.sleep(0)
    caller.tasks["b"].cancel()
    await settle()
    assert caller.order[-1] == "c"
    await caller.drain()
    assert budget.usage().in_flight == {"write": 0}


async def test_a_call_that_fails_gives_its_slot_back(clock):
    budget, caller = make(clock, write_slots=1)
    with pytest.raises(ValueError, match="boom"):
        async with budget.slot(P.WRITE, "p"):
            raise ValueError("boom")
    await caller.start("next", P.WRITE, "p")
    assert caller.order == ["next"]
    await caller.drain()


async def test_calls_are_counted_by_class_and_outcome(clock):
    budget, _ = make(clock)
    budget.note(P.READ, 200)
    budget.note(P.READ, 200)
    budget.note(P.CREATE, 403)
    budget.note(P.WRITE, None, transport_error="timeout")
    budget.note(P.WRITE, None)
    assert budget.usage().calls == {
        ("read", "200"): 2,
        ("create", "403"): 1,
        ("write", "timeout"): 1,
        ("write", "none"): 1,
    }


async def test_closing_leaves_no_task_behind(clock):
    budget, caller = make(clock)
    budget.note(P.WRITE, 429, retry_after_s=5)
    await caller.start("a", P.WRITE)
    before = len(asyncio.all_tasks())
    await budget.close()
    assert len(asyncio.all_tasks()) == before - 1
    caller.tasks["a"].cancel()
    await settle()


async def test_everybody_is_served_whatever_gives_up(clock):
    budget, _ = make(clock, read_slots=2, write_slots=3, pool_share=0.5)
    served = 0

    async def call(n):
        nonlocal served
        async with budget.slot(Priority(n % 4), f"pool-{n % 5}"):
            await asyncio.sleep(0)
            served += 1

    tasks = [asyncio.create_task(call(n)) for n in range(400)]
    await asyncio.sleep(0)
    for task in tasks[::7]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(isinstance(one, asyncio.CancelledError) for one in results)
    assert served == 400 - cancelled
    assert cancelled > 0
    assert set(budget.usage().waiting.values()) == {0}
    assert set(budget.usage().in_flight.values()) == {0}


def test_backoff_doubles_to_its_limit_and_starts_again():
    backoff = Backoff(base_s=1, limit_s=10, chance=lambda: 1.0)
    assert [backoff.next_delay_s() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert backoff.failures == 6
    backoff.reset()
    assert backoff.next_delay_s() == 1


def test_backoff_jitters_between_half_and_whole():
    assert Backoff(base_s=4, chance=lambda: 0.0).next_delay_s() == 2
    delays = {Backoff(base_s=4).next_delay_s() for _ in range(50)}
    assert len(delays) > 10
    assert all(2 <= delay <= 4 for delay in delays)


def test_backoff_after_very_many_failures():
    backoff = Backoff(limit_s=60, chance=lambda: 1.0)
    backoff.failures = 10**6
    assert backoff.next_delay_s() == 60

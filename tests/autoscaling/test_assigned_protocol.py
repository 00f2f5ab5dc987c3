"""Never two readers of a partition, whatever is lost, late, doubled, dead or slow."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.autoscaling.assigned.coordinator import Coordinator
from balancer.autoscaling.assigned.member import Change, Member
from balancer.autoscaling.assigned.messages import Assignment, Heartbeat, Partition
from balancer.autoscaling.assigned.settings import ControlSettings
from balancer.autoscaling.errors import AutoscalingError

SETTINGS = ControlSettings(lease_seconds=6.0, drift=0.1, silent_seconds=3.0, stop_seconds=20.0)
PARTITIONS: tuple[Partition, ...] = tuple(("orders", n) for n in range(4))


@dataclass
class Consumer:
    """A consumer whose clock begins anywhere and runs a little too fast or slow."""

    member: Member
    offset: float
    pace: float
    dead: bool = False
    # what the application has been told to stop, and still does
    stopping: frozenset[Partition] = frozenset()

    def clock(self, now: float) -> float:
        return self.offset + self.pace * now

    def reads(self, now: float) -> set[Partition]:
        at = self.clock(now)
        return set() if self.dead else {p for p in PARTITIONS if self.member.may_process(p, at)}


@dataclass
class World:
    """Consumers, one controller at a time, and a network that keeps nothing in order."""

    random: random.Random
    now: float = 1000.0
    epoch: int = 1
    consumers: list[Consumer] = field(default_factory=list)
    network: list[Heartbeat | Assignment] = field(default_factory=list)
    started: int = 0

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(self.epoch, self.now, SETTINGS)

    def start(self) -> None:
        self.started += 1
        name = f"consumer-{self.random.randrange(3)}"
        member = Member(name, f"{name}/{self.started}", 1)
        offset = self.random.uniform(-1e6, 1e6)
        self.consumers.append(Consumer(member, offset, self.random.uniform(0.96, 1.04)))

    def elect(self) -> None:
        self.epoch += 1
        self.coordinator = Coordinator(self.epoch, self.now, SETTINGS)

    def target(self) -> None:
        names = [f"consumer-{n}" for n in range(3)]
        self.coordinator.assign({p: self.random.choice(names) for p in PARTITIONS})

    def deliver(self, keep: bool) -> None:
        if not self.network:
            return
        at = self.random.randrange(len(self.network))
        message = self.network[at] if keep else self.network.pop(at)
        if isinstance(message, Heartbeat):
            self.coordinator.receive(message, self.now)
            self.send()
            return
        for consumer in self.living():
            consumer.member.receive(message, consumer.clock(self.now))

    def send(self) -> None:
        self.network += [m for _, m in self.coordinator.messages(self.now)]

    def living(self) -> list[Consumer]:
        return [c for c in self.consumers if not c.dead]

    def beat(self, consumer: Consumer) -> None:
        self.network.append(consumer.member.heartbeat(consumer.clock(self.now)))

    def work(self, consumer: Consumer) -> None:
        """One step of the application: end what is to be stopped, then see what is due."""
        consumer.member.stopped(consumer.stopping)
        consumer.stopping = consumer.member.due(consumer.clock(self.now)).stop

    def step(self, action: str) -> None:
        living = self.living()
        consumer = self.random.choice(living) if living else None
        if action == "wait":
            self.now += self.random.choice((0.05, 0.3, 1.0, 2.5, 8.0))
        elif action == "start" and len(living) < 5:
            self.start()
        elif action == "elect":
            self.elect()
        elif action == "target":
            self.target()
        elif action in ("deliver", "double"):
            self.deliver(keep=action == "double")
        elif action == "lose" and self.network:
            self.network.pop(self.random.randrange(len(self.network)))
        elif action == "tick":
            self.send()
        elif consumer is not None and action == "kill":
            consumer.dead = True
        elif consumer is not None and action == "leave":
            consumer.member.leave()
        elif consumer is not None and action == "beat":
            self.beat(consumer)
        elif consumer is not None and action == "work":
            self.work(consumer)
        self.check()

    def check(self) -> None:
        reads = [c.reads(self.now) for c in self.consumers]
        for partition in PARTITIONS:
            by = [c.member.id for c, read in zip(self.consumers, reads, strict=True)
                  if partition in read]  # fmt: skip
            assert len(by) <= 1, (partition, by)

    def settle(self, seconds: float, controller: bool = True) -> None:
        """Time passes, and everything works."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.2
            for consumer in self.living():
                self.beat(consumer)
                self.work(consumer)
            while self.network:
                if controller:
                    self.deliver(keep=False)
                else:
                    self.network.clear()
            if controller:
                self.send()
            self.check()


ACTIONS = (
    *("wait",) * 4, "start", "elect", "target", "target", *("deliver",) * 12, "double", "double",
    "lose", "tick", "kill", "leave", *("beat",) * 6, *("work",) * 5,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    actions=st.lists(st.sampled_from(ACTIONS), min_size=50, max_size=400),
)
def test_never_two_readers_in_any_order_of_events(seed: int, actions: list[str]) -> None:
    world = World(random.Random(seed))
    world.start()
    world.target()
    for action in actions:
        world.step(action)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    actions=st.lists(st.sampled_from(ACTIONS), min_size=20, max_size=200),
)
def test_once_everything_works_again_everything_is_read(seed: int, actions: list[str]) -> None:
    world = World(random.Random(seed))
    for action in actions:
        world.step(action)
    world.elect()
    world.start()
    world.settle(2.0)
    last = world.consumers[-1].member.name
    world.coordinator.assign(dict.fromkeys(PARTITIONS, last))
    world.settle(25.0)
    reads = [c.reads(world.now) for c in world.living()]
    assert sorted(p for read in reads for p in read) == list(PARTITIONS)


@pytest.fixture
def world() -> World:
    found = World(random.Random(1))
    for n in range(2):
        found.start()
        found.consumers[n].member.name = f"consumer-{n}"
    return found


def share(world: World, first: int) -> None:
    """The first so many partitions for one consumer, the others for the other."""
    names = ["consumer-0"] * first + ["consumer-1"] * (len(PARTITIONS) - first)
    world.coordinator.assign(dict(zip(PARTITIONS, names, strict=True)))


def readers(world: World) -> list[int]:
    return [len(c.reads(world.now)) for c in world.consumers]


def test_partitions_move_once_their_reader_has_stopped(world: World) -> None:
    share(world, 4)
    world.settle(8.0)
    assert readers(world) == [4, 0]
    share(world, 1)
    first, second = world.consumers
    # told, but its application does not stop yet
    for _ in range(20):
        world.now += 0.2
        world.beat(first)
        world.beat(second)
        world.work(second)
        while world.network:
            world.deliver(keep=False)
        assert readers(world)[1] == 0
    world.settle(1.0)
    assert readers(world) == [1, 3]


def test_the_partitions_of_a_dead_consumer_go_on_after_its_lease(world: World) -> None:
    share(world, 2)
    world.settle(8.0)
    world.consumers[0].dead = True
    world.settle(1.0)
    share(world, 0)
    world.settle(4.0)
    # nobody can know yet that it is dead
    assert readers(world) == [0, 2]
    world.settle(2.5)
    assert readers(world) == [0, 4]


def test_one_that_leaves_is_not_waited_for(world: World) -> None:
    share(world, 2)
    world.settle(8.0)
    world.consumers[0].member.leave()
    world.settle(0.6)
    share(world, 0)
    world.settle(0.6)
    assert readers(world) == [0, 4]


def test_a_consumer_without_its_controller_stops_by_itself(world: World) -> None:
    share(world, 2)
    world.settle(8.0)
    world.settle(5.0, controller=False)
    assert readers(world) == [2, 2]
    world.settle(2.0, controller=False)
    assert readers(world) == [0, 0]
    world.settle(1.0)
    assert readers(world) == [2, 2]


def test_a_new_controller_moves_nothing_before_it_knows_what_all_hold(world: World) -> None:
    share(world, 2)
    world.settle(8.0)
    world.elect()
    share(world, 0)
    for _ in range(6):
        world.settle(1.0)
        assert readers(world) == [2, 2]
        assert world.coordinator.members(world.now) is None
    world.settle(2.0)
    assert readers(world) == [0, 4]
    assert world.coordinator.members(world.now) == {
        "consumer-0": frozenset(),
        "consumer-1": frozenset(PARTITIONS),
    }


def test_one_that_does_not_stop_in_time_loses_its_lease(world: World) -> None:
    share(world, 4)
    world.settle(8.0)
    share(world, 0)
    first, second = world.consumers
    for _ in range(140):
        world.now += 0.2
        world.beat(first)
        world.beat(second)
        world.work(second)
        while world.network:
            world.deliver(keep=False)
        world.send()
        world.check()
    assert readers(world) == [0, 4]


def test_what_a_lease_has_ended_is_stopped_before_it_starts_again() -> None:
    member = Member("a", "a/1", 1)

    def told(number: int, now: float) -> None:
        beat = member.heartbeat(now)
        message = Assignment(
            id="a/1", epoch=1, number=number, heartbeat=beat.number, lease_seconds=6.0,
            partitions={"orders": (0,)},
        )  # fmt: skip
        member.receive(message, now)

    one = frozenset(PARTITIONS[:1])
    told(1, 0.0)
    assert member.due(0.0) == Change(frozenset(), one)
    assert member.heartbeat(7.0).held == frozenset()
    told(2, 8.0)
    assert not member.may_process(PARTITIONS[0], 8.0)
    assert member.due(8.0) == Change(one, frozenset())
    member.stopped(one)
    assert member.due(8.0) == Change(frozenset(), one)
    assert member.may_process(PARTITIONS[0], 8.0)


def test_an_assignment_that_comes_after_its_lease_starts_nothing() -> None:
    member = Member("a", "a/1", 1)
    beat = member.heartbeat(0.0)
    late = Assignment(
        id="a/1", epoch=1, number=1, heartbeat=beat.number, lease_seconds=6.0,
        partitions={"orders": (0,)},
    )  # fmt: skip
    assert not member.receive(late, 6.0)
    assert member.due(6.0) == Change(frozenset(), frozenset())
    # of somebody else
    assert not member.receive(late.model_copy(update={"id": "a/2"}), 1.0)


def test_messages_are_checked_on_arrival() -> None:
    beat = Member("a", "a/1", 1).heartbeat(0.0)
    assert Heartbeat.decode(beat.encode()) == beat
    for value in (None, b"", b"{}", b"\xff", beat.encode().replace(b"0", b"-1"), b"1" * (1 << 21)):
        assert Heartbeat.decode(value) is None
    assert Assignment.decode(beat.encode()) is None


def test_settings_are_checked() -> None:
    with pytest.raises(AutoscalingError, match="lease_seconds: 0 found, seconds above 0 expected"):
        ControlSettings(lease_seconds=0)
    with pytest.raises(AutoscalingError, match="drift: -1 found, 0 or more expected"):
        ControlSettings(drift=-1)

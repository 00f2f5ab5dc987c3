"""Never two readers of a partition, whatever is lost, late, doubled, dead or slow."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.autoscaling.assigned.coordinator import Coordinator, last_target
from balancer.autoscaling.assigned.member import Change, Member
from balancer.autoscaling.assigned.messages import Assignment, Heartbeat, Partition, by_topic
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


@dataclass
class Network:
    """Delivers each message none, one or more times, mostly soon and sometimes very late."""

    random: random.Random
    loss: float
    late: float
    double: float
    due: list[tuple[float, int, Heartbeat | Assignment]] = field(default_factory=list)
    count: int = 0

    def send(self, message: Heartbeat | Assignment, now: float) -> None:
        if self.random.random() < self.loss:
            return
        for _ in range(1 + (self.random.random() < self.double)):
            most = 20.0 if self.random.random() < self.late else 0.4
            self.count += 1
            heapq.heappush(self.due, (now + self.random.uniform(0, most), self.count, message))

    def arrived(self, now: float) -> Iterator[Heartbeat | Assignment]:
        while self.due and self.due[0][0] <= now:
            yield heapq.heappop(self.due)[2]


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from((0.0, 0.05, 0.3)),
    late=st.sampled_from((0.0, 0.1, 0.5)),
    double=st.sampled_from((0.0, 0.2)),
)
def test_never_two_readers_on_a_bad_network(
    seed: int, loss: float, late: float, double: float
) -> None:
    chance = random.Random(seed)
    world, network = World(chance), Network(chance, loss, late, double)
    silent: dict[str, float] = {}
    busy: dict[str, float] = {}

    def often(seconds: float) -> bool:
        return chance.random() < 0.1 / seconds

    for _ in range(1200):
        world.now += 0.1
        living = world.living()
        if len(living) < 4 and (often(2.0) or not living):
            world.start()
        if often(12.0):
            world.elect()
            world.target()
        if often(3.0):
            world.target()
        if living and often(15.0):
            chance.choice(living).dead = True
        for message in network.arrived(world.now):
            if isinstance(message, Heartbeat):
                world.coordinator.receive(message, world.now)
            else:
                for consumer in world.living():
                    consumer.member.receive(message, consumer.clock(world.now))
        for consumer in world.living():
            id_ = consumer.member.id
            if often(20.0):
                silent[id_] = world.now + chance.uniform(1.0, 12.0)
            if often(5.0):
                busy[id_] = world.now + chance.uniform(0.5, 12.0)
            if world.now > silent.get(id_, 0.0) and often(0.4):
                network.send(consumer.member.heartbeat(consumer.clock(world.now)), world.now)
            if world.now > busy.get(id_, 0.0):
                world.work(consumer)
        for _, answer in world.coordinator.messages(world.now):
            network.send(answer, world.now)
        world.check()


ACTIONS = (
    *("wait",) * 4, "start", "elect", "target", "target", *("deliver",) * 12, "double", "double",
    "lose", "tick", "kill", "leave", *("beat",) * 6, *("work",) * 5,
)  # fmt: skip


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


P, Q = PARTITIONS[:2]


def heard(
    coordinator: Coordinator,
    now: float,
    name: str,
    number: int,
    seen: int,
    *partitions: Partition,
    epoch: int = 2,
) -> dict[str, set[Partition] | None]:
    """What is told after a heartbeat, by name of the consumer."""
    beat = Heartbeat(
        consumer=name, id=f"{name}/1", address=1, number=number, epoch=epoch, seen=seen,
        partitions=by_topic(partitions),
    )  # fmt: skip
    coordinator.receive(beat, now)
    return {
        m.id.partition("/")[0]: None if m.given is None else set(m.given)
        for _, m in coordinator.messages(now)
    }


def test_what_a_consumer_may_begin_to_read_is_reported_as_held() -> None:
    member = Member("a", "a/1", 1)
    beat = member.heartbeat(0.0)
    told = Assignment(
        id="a/1", epoch=1, number=1, heartbeat=beat.number, lease_seconds=6.0,
        partitions=by_topic([P]),
    )  # fmt: skip
    assert member.receive(told, 1.0)
    assert member.heartbeat(1.0).held == frozenset([P])
    assert member.due(1.0).start == frozenset([P])
    # no record is begun that could take longer than the lease
    assert member.may_process(P, 4.0, seconds=1.9)
    assert not member.may_process(P, 4.0, seconds=2.0)
    # told to stop, it holds it until its application has stopped
    member.receive(told.model_copy(update={"number": 2, "partitions": {}}), 4.0)
    assert not member.may_process(P, 4.0)
    assert member.heartbeat(4.0).held == frozenset([P])
    member.stopped(member.due(4.0).stop)
    assert member.heartbeat(4.0).held == frozenset()


def test_what_is_not_known_of_a_consumer_holds_everything_back() -> None:
    coordinator = Coordinator(2, 0.0, SETTINGS)
    heard(coordinator, 5.0, "a", 1, 9, epoch=1)
    assert heard(coordinator, 6.0, "b", 1, 0, epoch=1) == {"b": None}
    assert heard(coordinator, 6.1, "b", 2, 2) == {"b": None}
    coordinator.assign({P: "b"})
    # all leases of the controller before are over, but this one has renewed those of both
    heard(coordinator, 7.0, "b", 3, 3)
    assert coordinator.members(7.0) is None
    assert heard(coordinator, 7.0, "b", 4, 3) == {"b": set()}
    assert heard(coordinator, 7.1, "a", 2, 1) == {"a": set(), "b": {P}}


def test_an_old_heartbeat_says_nothing_new() -> None:
    coordinator = Coordinator(2, -10.0, SETTINGS)
    coordinator.assign({P: "a"})
    assert heard(coordinator, 0.0, "a", 1, 0) == {"a": {P}}
    heard(coordinator, 0.1, "b", 1, 0)
    assert heard(coordinator, 0.2, "a", 3, 1, P) == {"a": {P}}
    coordinator.assign({P: "b"})
    # sent before it was given the partition
    assert heard(coordinator, 0.3, "a", 2, 0) == {"a": set()}
    # it has not seen yet that it is to stop, and then it has
    assert heard(coordinator, 0.4, "a", 4, 3, P) == {"a": set()}
    assert heard(coordinator, 0.5, "a", 5, 5)["b"] == {P}


def test_what_was_sent_counts_until_something_later_was_seen() -> None:
    coordinator = Coordinator(2, -10.0, SETTINGS)
    heard(coordinator, 0.0, "a", 1, 0)
    coordinator.assign({P: "a"})
    assert heard(coordinator, 0.1, "a", 2, 1) == {"a": {P}}
    heard(coordinator, 0.2, "b", 1, 0)
    heard(coordinator, 0.2, "b", 2, 3)
    coordinator.assign({P: "b"})
    # the assignment may still be on its way
    assert heard(coordinator, 0.3, "a", 3, 1) == {"a": set()}
    assert heard(coordinator, 0.4, "a", 4, 1) == {"a": set()}
    assert heard(coordinator, 0.5, "a", 5, 6) == {"a": set(), "b": {P}}


def test_a_controller_that_is_not_the_last_one_says_nothing() -> None:
    coordinator = Coordinator(2, -10.0, SETTINGS)
    assert heard(coordinator, 0.0, "a", 1, 4, epoch=3) == {}
    assert coordinator.members(0.0) == {}


def test_a_second_process_of_a_name_takes_over_when_the_first_has_stopped() -> None:
    coordinator = Coordinator(2, -10.0, SETTINGS)
    coordinator.assign({P: "a"})
    assert heard(coordinator, 0.0, "a", 1, 0) == {"a": {P}}
    assert heard(coordinator, 0.1, "a", 2, 1, P) == {"a": {P}}
    second = Heartbeat(consumer="a", id="a/2", address=1, number=1, epoch=2, seen=0)
    coordinator.receive(second, 0.2)
    told = {m.id: m.given for _, m in coordinator.messages(0.2)}
    assert told == {"a/1": frozenset(), "a/2": frozenset()}
    assert coordinator.members(0.2) == {"a": frozenset()}
    coordinator.receive(second.model_copy(update={"id": "a/1", "number": 3, "seen": 3}), 0.3)
    assert {m.id: m.given for _, m in coordinator.messages(0.3)}["a/2"] == frozenset([P])


def lose_for(world: World, deaf: Consumer) -> None:
    """Assignments on their way to a consumer are lost."""
    world.network = [m for m in world.network if isinstance(m, Heartbeat) or m.id != deaf.member.id]


def deaf_steps(world: World, seconds: float, deaf: Consumer) -> None:
    """Time passes; one consumer sends heartbeats and receives nothing."""
    end = world.now + seconds
    while world.now < end:
        world.now += 0.2
        for consumer in world.living():
            world.beat(consumer)
            world.work(consumer)
        while world.network:
            world.deliver(keep=False)
            lose_for(world, deaf)
        world.send()
        lose_for(world, deaf)
        world.check()


@pytest.mark.parametrize("since", ["start", "election", "work"])
def test_one_that_hears_nothing_stops_nobody_for_ever(world: World, since: str) -> None:
    deaf = world.consumers[1]
    if since != "start":
        share(world, 2)
        world.settle(8.0)
        assert readers(world) == [2, 2]
    if since == "election":
        world.elect()
    share(world, 2)
    deaf_steps(world, 45.0, deaf)
    share(world, 4)
    deaf_steps(world, 3.0, deaf)
    assert readers(world) == [4, 0]
    assert world.coordinator.members(world.now) == {"consumer-0": frozenset(PARTITIONS)}
    # another one is started in its place
    world.start()
    world.consumers[2].member.name = "consumer-2"
    deaf_steps(world, 2.0, deaf)
    assert set(world.coordinator.members(world.now) or ()) == {"consumer-0", "consumer-2"}
    # its partition of the control topic is back
    share(world, 2)
    world.settle(8.0)
    assert readers(world)[:2] == [2, 2]


def test_what_is_kept_of_one_that_hears_nothing_is_bounded() -> None:
    coordinator = Coordinator(2, -10.0, SETTINGS)
    coordinator.assign({P: "a"})
    most = 0
    for number in range(1200):
        heard(coordinator, number * 0.5, "a", number, 0)
        most = max(most, *(len(p.sent) for p in coordinator._peers.values()))
    assert most <= SETTINGS.stop_seconds / 0.5 + 2


def test_a_gone_consumer_is_replaced_although_nobody_decides(world: World) -> None:
    share(world, 2)
    world.settle(8.0)
    world.start()
    world.consumers[2].member.name = "consumer-2"
    world.settle(2.0)
    assert readers(world) == [2, 2, 0]
    world.consumers[0].dead = True
    world.settle(6.0)
    assert readers(world) == [0, 2, 0]
    world.settle(8.0)
    # those with the fewest have them
    assert readers(world) == [0, 2, 2]
    # and give them back when it is there again
    world.start()
    world.consumers[3].member.name = "consumer-0"
    world.settle(8.0)
    assert readers(world) == [0, 2, 0, 2]


@pytest.mark.parametrize("told", [True, False])
def test_a_controller_that_takes_over_knows_what_the_last_one_has_said(
    world: World, told: bool
) -> None:
    share(world, 2)
    sent: list[Assignment] = []
    send = world.send

    def noted() -> None:
        before = len(world.network)
        send()
        sent.extend(m for m in world.network[before:] if isinstance(m, Assignment))

    world.send = noted  # type: ignore[method-assign]
    world.settle(8.0)
    assert readers(world) == [2, 2]
    world.consumers[0].dead = True
    # no controller for longer than a lease: nobody reads
    world.settle(8.0, controller=False)
    assert readers(world) == [0, 0]
    world.elect()
    if told:
        world.coordinator.restore(last_target(sent))
    world.settle(20.0)
    assert readers(world) == [0, 4 if told else 0]
    if told:
        # another one that is elected before anybody decides
        world.elect()
        world.coordinator.restore(last_target(sent))
        world.settle(20.0)
        assert readers(world) == [0, 4]


def test_what_was_decided_since_counts_more_than_what_was_read_back(world: World) -> None:
    share(world, 4)
    world.coordinator.restore(dict.fromkeys(PARTITIONS, "consumer-1"))
    world.settle(8.0)
    assert readers(world) == [4, 0]


def test_the_last_target_is_that_of_the_latest_assignments() -> None:
    def said(id_: str, epoch: int, number: int, *numbers: int) -> Assignment:
        return Assignment(
            id=id_, epoch=epoch, number=number, heartbeat=1, lease_seconds=6.0,
            partitions={"orders": numbers},
        )  # fmt: skip

    messages = [
        said("a/b/1", 1, 1, 0, 1, 2),
        said("c/1", 1, 2),
        said("a/b/1", 1, 3, 0),
        said("c/1", 1, 4, 1, 2),
        # it died, and what it had goes to the other one in the next epoch
        said("a/b/1", 2, 2, 0, 1),
        said("c/1", 2, 1, 2),
        said("a/b/1", 3, 1, 0).model_copy(update={"partitions": None}),
    ]
    expected = {("orders", 0): "a/b", ("orders", 1): "a/b", ("orders", 2): "c"}
    for seed in range(20):
        random.Random(seed).shuffle(messages)
        assert last_target(messages) == expected
    assert last_target([]) == {}

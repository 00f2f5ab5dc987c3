"""The conformance kit: tests whether a goal keeps the promises that the optimiser relies on.

The promises are the four conditions of the AutoBalancer seed (scores in [0, 1]; equal
if an action has no effect; lower after harm, higher after improvement) and the needs of
batch scoring: the same score for any number of cells at once, no side effects,
no randomness, and pickling; and that the sums of the goal's cells, kept up to date action by
action, equal those of all replicas added up.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

import numpy as np
from pydantic import ValidationError

from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import BrokerState, Floats, Ints, Snapshot
from cluster_model.synthetic import synthetic_snapshot
from goals.cluster import Cluster
from goals.goal import Goal, Infeasibility
from goals.registry import inapplicable
from goals.state import State

# Sums are kept by adding and subtracting: a load that left and returned may differ by this.
_SAME = 1e-9
_WALK = 40
_UNMET_CELLS = 6
# Attributes as large as loads: their sum is this many times the total load, for either half.
_SCARCE, _AMPLE = 0.6, 2.0
# Kinds of values of several attributes, combined.
_MOST_COMBINATIONS = 16


@dataclass
class Report:
    """The conformance kit's findings on one goal; plain data.

    Attributes
    ----------
    goal
        Name of the goal.
    problems
        Broken promises, one sentence each; empty if the goal conforms.
    notes
        Promises that could not be tested, with the reason.
    clusters, scores, actions
        Number of clusters, cell scores and actions examined.
    """

    goal: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    clusters: int = 0
    scores: int = 0
    actions: int = 0

    @property
    def ok(self) -> bool:
        """Whether the goal conforms."""
        return not self.problems


def assert_conforms(
    goal: Goal | type[Goal], *, seed: int = 0, clusters: Sequence[Snapshot] | None = None
) -> None:
    """Raise AssertionError with every broken promise, unless the goal conforms.

    Parameters
    ----------
    goal, seed, clusters
        As for :func:`check_goal`.
    """
    report = check_goal(goal, seed=seed, clusters=clusters)
    if not report.ok:
        raise AssertionError("\n".join([f"{report.goal} does not conform:", *report.problems]))


def check_goal(
    goal: Goal | type[Goal], *, seed: int = 0, clusters: Sequence[Snapshot] | None = None
) -> Report:
    """Test a goal on small clusters with random actions, and report broken promises.

    Parameters
    ----------
    goal
        A goal, or its class if every field has a default. Choose thresholds that small
        clusters (4 to 8 brokers, 60 partitions) violate, or less can be tested.
    seed
        Seed of the clusters and the actions; equal arguments give equal reports.
    clusters
        Snapshots to use instead of the built-in ones, for example with custom resources. In the
        built-in ones, attributes that the goal requires are in turn small numbers, numbers as
        large as the loads it reads, and the texts ``a`` and ``b`` (for topics also names of other
        topics and of racks); what it cannot read is left out.
        A goal that applies to none of them does not conform, as nothing was tested.
    """
    if isinstance(goal, type):
        kind = goal
        try:
            goal = kind()
        except ValidationError as error:
            missing = ", ".join(str(e["loc"][0]) for e in error.errors() if e["loc"])
            problem = f"give a goal, not its class: it needs values for {missing}"
            return Report(kind.__name__, [problem])
    report = Report(goal.name)
    _check_class(goal, report)
    rng = np.random.default_rng(seed)
    evidence, lacks = _Evidence(), dict[str, str]()
    if clusters is None:
        clusters = [s for plain in example_snapshots(seed) for s in _with_attributes(plain, goal)]
    for snapshot in clusters:
        if lack := inapplicable([goal], snapshot):
            lacks |= lack
            continue
        report.clusters += 1
        try:
            _check_on(goal, snapshot, rng, report, evidence)
        except _BrokenError as broken:
            _add(report.problems, str(broken))
        except Exception as error:  # a goal may raise anything
            reason = " ".join(str(error).split())
            hint = ""
            if "read-only" in reason:
                hint = ": a goal may not change the arrays it is given"
            elif isinstance(error, IndexError):
                hint = ": values per broker are gathered with state.broker, per topic with .topic"
            _add(report.problems, f"it raised {type(error).__name__} ({reason}){hint}")
    if not report.clusters:
        lacking = lacks.get(goal.name, "none was given")
        _add(report.problems, f"it was tried on no cluster: {lacking}")
    _judge(report, evidence)
    return report


def example_snapshots(seed: int = 0) -> list[Snapshot]:
    """The kit's clusters: plain; with dead, new and demoted brokers; with disks; with sets.

    In the first two, partitions communicate in twos and threes, and a little with all others.
    """
    size: dict[str, Any] = {"partitions": 60, "topics": 6, "largest_partition": 0.2}
    plain = synthetic_snapshot(
        brokers=6,
        racks=3,
        replication_factor=2,
        rack_violations=0.3,
        utilization=0.6,
        seed=seed,
        **size,
    )
    mixed = synthetic_snapshot(
        brokers=8,
        racks=4,
        rack_violations=0.3,
        utilization=0.5,
        heterogeneity=0.5,
        dead_brokers=1,
        new_brokers=1,
        seed=seed,
        **size,
    )
    state, leader = mixed.broker_state.copy(), mixed.leader.copy()
    state[np.flatnonzero(state == BrokerState.ALIVE)[0]] = BrokerState.DEMOTED
    leader[::20] = -1
    disks = synthetic_snapshot(
        brokers=4,
        racks=2,
        replication_factor=2,
        utilization=0.5,
        disks_per_broker=3,
        seed=seed,
        **size,
    )
    alive = disks.disk_alive.copy()
    alive[1] = False
    sets = synthetic_snapshot(
        brokers=8, racks=2, replication_factor=2, utilization=0.5, seed=seed + 1, **size
    )
    half = np.arange(8) // 4
    # If only a demotion keeps leaders from being eligible, moves fix that.
    demoted = sets.broker_state.copy()
    demoted[-1] = BrokerState.DEMOTED
    return [
        _with_traffic(plain, seed),
        _with_traffic(replace(mixed, broker_state=state, leader=leader), seed),
        replace(disks, disk_alive=alive),
        replace(
            sets,
            broker_state=demoted,
            broker_sets=("first", "second"),
            broker_set=half,
            hosts=("a", "b", "c", "d"),
            broker_host=np.arange(8) // 2,
        ),
    ]


def _with_attributes(snapshot: Snapshot, goal: Goal) -> list[Snapshot]:
    """Clusters with the attributes a goal needs, in every kind of values that it can read."""
    read = goal.scope.attributes()
    grouped = {name: _texts(snapshot.n_brokers) for of, name in read if of == "broker"}
    required = (text.partition(" attribute ") for text in goal.requires)
    needed = [
        (of, name)
        for of, name in (*((of, name) for of, named, name in required if named), *read)
        if not (of == "broker" and name in grouped)
    ]
    # by which attributes are text: a goal that can read some numbers must read all of them
    made: dict[tuple[bool, ...], list[Snapshot]] = {}
    for values in islice(
        product(*(_kinds(snapshot, goal, of) for of, _ in needed)), _MOST_COMBINATIONS
    ):
        given = {"broker": dict(grouped), "topic": dict[str, Any]()}
        for (of, name), column in zip(needed, values, strict=True):
            given[of][name] = column
        made.setdefault(tuple(column.dtype.kind == "U" for column in values), []).append(
            replace(snapshot, broker_attributes=given["broker"], topic_attributes=given["topic"])
        )
    kept = [s for alike in made.values() if any(_reads(goal, s) for s in alike) for s in alike]
    # If it reads none of them, the first shows why.
    return kept or next(iter(made.values()))[:1]


def _kinds(snapshot: Snapshot, goal: Goal, of: str) -> list[Any]:
    """Values of an attribute: small numbers, numbers as large as loads are, and text.

    For topics, text is also the names of other topics, and of racks.
    """
    length = snapshot.n_brokers if of == "broker" else len(snapshot.topics)
    one = np.arange(length)
    partition = snapshot.replica_partition
    named = {getattr(goal, "resource", None), *goal.requires}
    totals = [
        np.where(
            snapshot.replica_is_leader,
            snapshot.leader_load[partition, r],
            snapshot.follower_load[partition, r],
        ).sum()
        for r, resource in enumerate(snapshot.resources)
        if resource in named
    ] or [float(len(partition))]
    # Half of them have more than their share, so that a limit is met by some and missed by others.
    shares = np.where(one % 2, _SCARCE, _AMPLE) / length
    texts = [_texts(length)]
    if of == "topic":
        texts += [np.roll(snapshot.topics, 1), np.resize(snapshot.racks, length)]
    return [1.0 + one % 3, *(total * shares for total in totals), *texts]


def _texts(length: int) -> Any:
    return np.where(np.arange(length) % 2, "b", "a")


def _reads(goal: Goal, snapshot: Snapshot) -> bool:
    """Whether a goal can read the values of the attributes: text may not do for a number."""
    if inapplicable([goal], snapshot):
        return True
    cluster = Cluster(Placement(snapshot))
    try:
        _Judge(goal.prepared(cluster), cluster, Report(goal.name)).scores()
    except Exception as error:  # a goal may raise anything
        return not isinstance(error.__cause__ or error, TypeError | ValueError)
    return True


def _with_traffic(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same with traffic: half of the partitions send mostly to the next in a random order."""
    rng, n = np.random.default_rng(seed), snapshot.n_partitions
    row = rng.permutation(n)[: n // 2]
    apart = np.arange(1, len(row)) % 3 > 0
    everybody = np.arange(n * n)
    return replace(
        snapshot,
        traffic_from=np.concatenate([row[:-1][apart], everybody // n]),
        traffic_to=np.concatenate([row[1:][apart], everybody % n]),
        traffic_rate=np.concatenate([rng.uniform(50, 100, apart.sum()), np.ones(n * n)]),
    )


class _BrokenError(Exception):
    """A broken promise that leaves nothing else to test on this cluster."""


@dataclass
class _Evidence:
    """Observations on all clusters together."""

    unmet: int = 0
    helped: int = 0
    stuck: int = 0
    graded: bool = False
    impossible: int = 0


def _add(sentences: list[str], sentence: str) -> None:
    if sentence not in sentences:
        sentences.append(sentence)


def _check_class(goal: Goal, report: Report) -> None:
    kind = type(goal)
    if not (kind.__dict__.get("__doc__") or "").strip():
        _add(report.problems, "it has no docstring: say in one sentence when it is met")
    if kind.score is Goal.score:
        _add(report.problems, "it has no score method")
    try:
        if pickle.loads(pickle.dumps(goal)) != goal:
            _add(report.problems, "it is a different goal after pickling")
    except Exception as error:  # pickling fails in many ways
        _add(report.problems, f"it cannot be pickled ({' '.join(str(error).split())})")


def _check_on(
    goal: Goal, snapshot: Snapshot, rng: np.random.Generator, report: Report, evidence: _Evidence
) -> None:
    cluster = Cluster(Placement(snapshot))
    before = _fingerprint(goal), _fingerprint(cluster.placement.copy())
    prepared = goal.prepared(cluster)
    infeasibilities = goal.infeasibilities(cluster)
    if not all(isinstance(o, Infeasibility) for o in infeasibilities):
        raise _BrokenError("infeasibilities() did not return a list of Infeasibility")
    judge = _Judge(prepared, cluster, report)
    scores = judge.scores()
    if _fingerprint(goal) != before[0]:
        _add(report.problems, "preparing a copy changed the original")
    if (_fingerprint(cluster.placement)[:3]) != before[1][:3]:
        raise _BrokenError("prepare, infeasibilities or score changed the placement")
    if not np.array_equal(scores, judge.scores()):
        _add(report.problems, "scoring the same state twice gave different scores")
    if not np.array_equal(scores, _Judge(goal.prepared(cluster), cluster, report).scores()):
        _add(report.problems, "preparing twice gave different scores")
    try:
        copy: Goal = pickle.loads(pickle.dumps(prepared))
    except Exception as error:  # pickling fails in many ways
        _add(report.problems, f"prepared, it cannot be pickled ({' '.join(str(error).split())})")
    else:
        if not np.array_equal(scores, _Judge(copy, cluster, report).scores()):
            _add(report.problems, "prepared and pickled, it scores differently")
    _check_shapes(judge, scores, rng)
    _walk(judge, rng, report)
    evidence.graded |= bool(((scores > 0) & (scores < 1)).any())
    if infeasibilities:
        evidence.impossible += 1
        return
    _look_for_gradient(judge, rng, evidence)


def _fingerprint(thing: Goal | Placement) -> tuple[bytes, ...]:
    if isinstance(thing, Placement):
        arrays = (thing.replica_broker, thing.replica_disk, thing.leader)
        return tuple(a.tobytes() for a in arrays)
    try:
        return (pickle.dumps(thing),)
    except Exception:  # reported elsewhere
        return (repr(thing.__pydantic_private__).encode(),)


class _Judge:
    """A prepared goal and the cluster it scores."""

    def __init__(self, goal: Goal, cluster: Cluster, report: Report) -> None:
        self.goal, self.cluster, self.report = goal, cluster, report

    @property
    def placement(self) -> Placement:
        return self.cluster.placement

    @property
    def cells(self) -> Ints:
        scope = self.goal.scope
        if scope.of_partitions:
            return np.arange(self.cluster.snapshot.n_partitions)
        return np.arange(self.placement.cells(scope))

    def scores(self, cells: Ints | None = None) -> Floats:
        """Scores of cells of any shape."""
        keys = self.cells if cells is None else cells
        scope = self.goal.scope
        if scope.of_partitions:
            state = self.cluster.partition_state(keys)
        else:
            state = State(lambda name: self.cluster.fetch(scope, name, keys))
        found = np.asarray(self.goal.score(state), np.float64)
        if found.shape != keys.shape:
            raise _BrokenError(
                f"score() returned an array of shape {found.shape} for cells of shape {keys.shape}"
            )
        if not np.isfinite(found).all():
            raise _BrokenError("condition 1: a score is not a finite number")
        if found.size and not (found.min() >= 0 and found.max() <= 1):
            worst = found.flat[int(np.argmax(np.abs(found - 0.5)))]
            raise _BrokenError(f"condition 1: a score of {worst:.6g} found, 0 to 1 expected")
        self.report.scores += found.size
        return found

    def touched(self, action: Batch) -> Ints:
        """The cells whose load one action changes."""
        if self.goal.scope.of_partitions:
            return action.partition
        placement, scope = self.placement, self.goal.scope
        disk = action.disk
        if len(placement.replica_disk):
            own = placement.replica_disk[action.partition * placement.slots + action.slot]
            disk = np.where(action.kind == LEAD, own, disk)
        source = placement.source(action)
        ends = [placement.keys(scope, action.partition, action.target, disk)]
        if source[0] >= 0:
            lost = placement.source_disk(action)
            ends.append(placement.keys(scope, action.partition, source, lost))
        found = np.unique(np.concatenate(ends, axis=None))
        return found[found >= 0]

    def benefit(self, before: Floats, after: Floats, touched: Ints) -> float:
        """The seed's score of an action: above 1/2 if it helps the worse of its cells.

        Of a goal that adds up: if it helps its cells together.
        """
        if not len(touched):
            return 0.5
        if self.goal.aggregate == "sum":
            return float(((after - before)[touched].sum() + 1) / 2)
        return float((after[touched].min() - before[touched].min() + 1) / 2)


def _check_shapes(judge: _Judge, scores: Floats, rng: np.random.Generator) -> None:
    cells = judge.cells
    for cell in rng.permutation(cells)[:20]:
        if judge.scores(np.array([cell]))[0] != scores[cell]:
            raise _BrokenError("a cell scored alone has a different score than among all cells")
    for rows in (2, 4):
        many = rng.choice(cells, (rows, 8))
        if not np.array_equal(judge.scores(many), scores[many]):
            raise _BrokenError(f"cells of shape {many.shape} score differently than in a row")
    judge.scores(cells[:0])


def _walk(judge: _Judge, rng: np.random.Generator, report: Report) -> None:
    """Conditions 1 to 4 along a random walk of legal actions."""
    walk = _actions(judge.cluster, rng)
    before = judge.scores()
    for _ in range(_WALK):
        action = next(walk, None)
        if action is None:
            return
        report.actions += 1
        touched = judge.touched(action)
        undo = judge.placement.apply(action)
        _check_sums(judge.placement)
        after = judge.scores()
        elsewhere = np.ones(len(before), np.bool_)
        elsewhere[touched] = False
        if (np.abs(after - before)[elsewhere] > _SAME).any():
            raise _BrokenError(
                "condition 2: an action changed the score of a cell it does not touch"
            )
        judge.placement.apply(undo)
        again = judge.scores()
        there, back = judge.benefit(before, after, touched), judge.benefit(after, again, touched)
        if not (0 <= there <= 1 and abs(there + back - 1) <= _SAME):
            raise _BrokenError(
                "conditions 3 and 4: an action and its undoing do not cancel out "
                f"({there:.6g} and {back:.6g} found, a sum of 1 expected)"
            )
        judge.placement.apply(action)
        before = judge.scores()


def _check_sums(placement: Placement) -> None:
    """Check that what the scope says about single replicas agrees with what it says about all."""
    try:
        placement.check()
    except AssertionError as error:
        raise _BrokenError(
            f"its scope is not consistent: after an action, {error}, compared with all replicas "
            "added up"
        ) from None


def _actions(cluster: Cluster, rng: np.random.Generator) -> Iterator[Batch]:
    """Legal actions in random order, each legal in the placement at the time it is drawn."""
    s, placement = cluster.snapshot, cluster.placement
    targets = np.flatnonzero(cluster.eligible)
    kinds = np.array([MOVE, MOVE, LEAD, *([MOVE_DISK] if s.n_disks else [])])
    misses = 0
    while misses < 1000:
        kind, p = int(rng.choice(kinds)), int(rng.integers(s.n_partitions))
        slot = int(rng.choice(np.flatnonzero(placement.brokers[p] >= 0)))
        action = _one(cluster, kind, p, slot, int(rng.choice(targets)), rng)
        misses = 0 if action is not None else misses + 1
        if action is not None:
            yield action


def _one(
    cluster: Cluster, kind: int, p: int, slot: int, target: int, rng: np.random.Generator
) -> Batch | None:
    """One action, or None if it is not legal."""
    s, placement = cluster.snapshot, cluster.placement
    held, disk = placement.brokers[p], -1
    if kind != MOVE:
        target = int(held[slot])
    if kind == MOVE and target in held:
        return None
    if kind == LEAD and (slot == placement.leader[p] or not cluster.leader_eligible[target]):
        return None
    if kind != LEAD and s.n_disks:
        disks = np.flatnonzero((s.disk_broker == target) & s.disk_alive)
        if kind == MOVE_DISK:
            disks = disks[disks != placement.replica_disk[p * placement.slots + slot]]
        if not len(disks):
            return None
        disk = int(rng.choice(disks))
    return Batch.of(kind, *(np.array([x], np.int64) for x in (p, slot, target, disk)))


def _look_for_gradient(judge: _Judge, rng: np.random.Generator, evidence: _Evidence) -> None:
    """Check, for each of the worst cells, whether a single action improves it."""
    scores = judge.scores()
    evidence.graded |= bool(((scores > 0) & (scores < 1)).any())
    unmet = np.flatnonzero(scores < 1)
    for cell in unmet[np.argsort(scores[unmet], kind="stable")][:_UNMET_CELLS]:
        evidence.unmet += 1
        if _can_be_helped(judge, int(cell), scores, rng):
            evidence.helped += 1
        else:
            evidence.stuck += 1


def _can_be_helped(judge: _Judge, cell: int, before: Floats, rng: np.random.Generator) -> bool:
    cluster, placement = judge.cluster, judge.placement
    partitions, slots = np.nonzero(placement.brokers >= 0)
    for row in rng.permutation(len(partitions)):
        p, slot = int(partitions[row]), int(slots[row])
        for kind, target in _ways(cluster):
            action = _one(cluster, kind, p, slot, target, rng)
            if action is None:
                continue
            touched = judge.touched(action)
            if cell not in touched:
                continue
            judge.report.actions += 1
            undo = placement.apply(action)
            after = before.copy()
            after[touched] = judge.scores(touched)
            placement.apply(undo)
            if judge.benefit(before, after, touched) > 0.5 + _SAME:
                return True
    return False


def _ways(cluster: Cluster) -> Iterator[tuple[int, int]]:
    yield LEAD, -1
    if cluster.snapshot.n_disks:
        yield MOVE_DISK, -1
    for target in np.flatnonzero(cluster.eligible):
        yield MOVE, int(target)


def _judge(report: Report, evidence: _Evidence) -> None:
    if report.problems:
        return  # observations of its gradient mean nothing
    if evidence.impossible and not evidence.unmet:
        report.notes.append("it was infeasible in every cluster: its gradient could not be tested")
    elif not evidence.unmet:
        report.notes.append(
            "every cluster met it: its gradient could not be tested; try tighter thresholds"
        )
    elif evidence.stuck and not evidence.graded:
        report.problems.append(
            f"conditions 3 and 4: it scores only 0 and 1, and {evidence.stuck} of "
            f"{evidence.unmet} unmet cells cannot be met by one action: score by how far "
            "away they are, for example with goals.at_most",
        )
    elif not evidence.helped:
        report.problems.append(
            f"condition 4: no action raises the score of any of {evidence.unmet} unmet cells"
        )

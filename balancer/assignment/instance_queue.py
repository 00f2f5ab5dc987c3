"""The queue from which Kafka takes the least loaded instance that suits a task."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from balancer.assignment.hash_order import instances_in_hash_order


class InstanceQueue:
    """Returns the least loaded of some instances, of those equal the first.

    Parameters
    ----------
    keys
        Load and number of each instance; the owner changes them.
    """

    def __init__(self, keys: Sequence[tuple[float, int]]) -> None:
        self._keys = keys

    def poll(self, candidates: Collection[int]) -> int | None:
        """Take the least loaded of the candidates (sorted); None if there are none."""
        return min(candidates, key=self._keys.__getitem__, default=None)

    def offer(self, instances: Sequence[int]) -> None:
        """Put instances back whose load may have changed."""


class KafkaInstanceQueue(InstanceQueue):
    """The same with Kafka's queue, which is not always right.

    Kafka changes the loads of instances while they are in a binary heap, and puts them in order one
    after the other. What the heap then returns can be an instance that is not the least loaded.
    This queue does step by step what Java's does, so that an assignment is the same even then; the
    work of a step grows with the number of instances.
    """

    def __init__(self, keys: Sequence[tuple[float, int]]) -> None:
        super().__init__(keys)
        self._heap: list[int] = []
        self._in: set[int] = set()
        self.offer(range(len(keys)))

    def poll(self, candidates: Collection[int]) -> int | None:
        """Take the first of the candidates from the heap; None if there are none."""
        aside: list[int] = []
        found = None
        if not candidates:
            # Each is taken out, and put back.
            aside, self._heap, self._in = self._heap, [], set()
        while self._heap and found is None:
            instance = self._pop()
            if instance in candidates:
                found = instance
            else:
                aside.append(instance)
        self.offer(instances_in_hash_order(aside))
        return found

    def offer(self, instances: Collection[int]) -> None:
        """Put instances into the heap, or to another place in it."""
        for instance in instances:
            if instance in self._in:
                self._remove(instance)
            self._in.add(instance)
            self._heap.append(instance)
            self._up(len(self._heap) - 1, instance)

    def _pop(self) -> int:
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            self._down(0, last)
        self._in.remove(first)
        return first

    def _remove(self, instance: int) -> None:
        heap = self._heap
        at, last = heap.index(instance), heap.pop()
        if at < len(heap):
            self._down(at, last)
            if heap[at] == last:
                self._up(at, last)

    def _up(self, at: int, instance: int) -> None:
        heap, keys = self._heap, self._keys
        key = keys[instance]
        while at:
            above = heap[(at - 1) >> 1]
            if key >= keys[above]:
                break
            heap[at] = above
            at = (at - 1) >> 1
        heap[at] = instance

    def _down(self, at: int, instance: int) -> None:
        heap, keys = self._heap, self._keys
        key, size, child = keys[instance], len(heap), 2 * at + 1
        while child < size:
            below = heap[child]
            if child + 1 < size and keys[heap[child + 1]] < keys[below]:
                child += 1
                below = heap[child]
            if key <= keys[below]:
                break
            heap[at] = below
            at, child = child, 2 * child + 1
        heap[at] = instance

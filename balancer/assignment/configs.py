"""Configuration of the assignment of tasks, under Kafka's names and with Kafka's limits."""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    model_validator,
)

from metrics_reporter.documents import Whole

# "No limit", as Java's Long.MAX_VALUE.
UNLIMITED = 2**63 - 1

# Kafka's costs are Java's int.
Cost = Annotated[int, Strict(), Field(ge=0, lt=2**31)]
_Several = TypeVar("_Several", bound=Sized)
# The limits of Kafka's StreamsConfig.
_MOST_TAGS, _LONGEST_KEY, _LONGEST_VALUE = 5, 20, 30


def _key(key: str) -> str:
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise ValueError(f"a tag of 1 to {_LONGEST_KEY} characters expected")
    return key


def _value(value: str) -> str:
    if len(value) > _LONGEST_VALUE:
        raise ValueError(f"at most {_LONGEST_VALUE} characters expected")
    return value


def _few(tags: _Several) -> _Several:
    if len(tags) > _MOST_TAGS:
        raise ValueError(f"at most {_MOST_TAGS} tags expected")
    return tags


TagKey = Annotated[str, AfterValidator(_key)]
# Tags of an instance by key.
Tags = Annotated[dict[TagKey, Annotated[str, AfterValidator(_value)]], AfterValidator(_few)]


class AssignmentConfigs(BaseModel):
    """Configuration of an assignment (KIP-924, ``AssignmentConfigs``; defaults of Kafka 4).

    Parameters
    ----------
    acceptable_recovery_lag
        Records that a copy may be behind and still count as caught up (KIP-441).
    max_warmup_replicas
        Maximum number of copies at a time that only exist to move a task (KIP-441).
    max_warmup_bytes
        Maximum bytes of state that these copies restore; None for no limit. Kafka has no such
        limit. Applies where sizes are known, except that a single warm-up may always exceed it.
    num_standby_replicas
        Copies of each stateful task besides the active one.
    probing_rebalance_interval_ms
        Milliseconds after which a rebalance looks again at the lags of warm-ups (KIP-441).
    standby_recovery_delay_ms
        Milliseconds for which the copies of an instance that has left are waited for before others
        are made in their place; 0 makes them at once, as Kafka does. Its active tasks move at once
        in any case. Applies to targets from goals that are not refined.
    rack_aware_assignment_strategy
        ``none``; ``min_traffic``: tasks are exchanged so that fewer partitions are read from
        another rack; ``balance_subtopology``: the same, with the tasks of each subtopology
        spread (KIP-925).
    rack_aware_assignment_traffic_cost, rack_aware_assignment_non_overlap_cost
        Cost of a partition that is read from another rack, and of a task on another instance
        than the first step dealt it to, wherever it runs; None for Kafka's: 10 and 1 for
        stateful tasks, 1 and 0 for stateless ones (KIP-925).
    rack_aware_assignment_tags
        Tags of instances by which standbys are spread, at most five (KIP-708).
    unknown_lag_is_caught_up
        Whether a copy whose lag is unknown ranks before all others, as in Kafka's assignor: then
        an active task stays on it although another instance has caught up. By default it ranks
        last.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    acceptable_recovery_lag: Whole = 10_000
    max_warmup_replicas: Annotated[Whole, Field(ge=1)] = 2
    max_warmup_bytes: Whole | None = None
    num_standby_replicas: Whole = 0
    probing_rebalance_interval_ms: Annotated[Whole, Field(ge=60_000)] = 600_000
    standby_recovery_delay_ms: Annotated[Whole, Field(lt=2**53)] = 600_000
    rack_aware_assignment_strategy: Literal["none", "min_traffic", "balance_subtopology"] = "none"
    rack_aware_assignment_traffic_cost: Cost | None = None
    rack_aware_assignment_non_overlap_cost: Cost | None = None
    rack_aware_assignment_tags: Annotated[tuple[TagKey, ...], AfterValidator(_few)] = ()
    unknown_lag_is_caught_up: StrictBool = False

    @model_validator(mode="after")
    def _tags_once(self) -> Self:
        tags = self.rack_aware_assignment_tags
        twice = sorted({tag for tag in tags if tags.count(tag) > 1})
        if twice:
            raise ValueError(
                f"tag {twice[0]!r} found twice in rack_aware_assignment_tags, once expected"
            )
        return self

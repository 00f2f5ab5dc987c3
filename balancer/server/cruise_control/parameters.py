"""Parameters of Cruise Control's endpoints: which there are, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from balancer.server.errors import RequestError
from balancer.server.models import LONGEST_REASON
from metrics_reporter.documents import shown

EVERYWHERE = frozenset({"json", "verbose", "get_response_schema", "reason", "review_id"})
PLANNED = frozenset(
    {
        "allow_capacity_estimation",
        "data_from",
        "dryrun",
        "excluded_topics",
        "exclude_recently_demoted_brokers",
        "exclude_recently_removed_brokers",
        "fast_mode",
        "goals",
        "kafka_assigner",
        "skip_hard_goal_check",
        "stop_ongoing_execution",
        "use_ready_default_goals",
    }
)
# Limits of one execution: they are settings here, and changed while it runs.
SPEED = frozenset(
    {
        "concurrent_intra_broker_partition_movements",
        "concurrent_leader_movements",
        "broker_concurrent_leader_movements",
        "concurrent_partition_movements_per_broker",
        "execution_progress_check_interval_ms",
        "max_partition_movements_in_cluster",
        "replica_movement_strategies",
        "replication_throttle",
    }
)
# Taken, since clients send them always, but nothing here depends on them.
WITHOUT_EFFECT = frozenset(
    {
        "allow_capacity_estimation",
        "avg_load",
        "data_from",
        "exclude_follower_demotion",
        "exclude_recently_demoted_brokers",
        "exclude_recently_removed_brokers",
        "fast_mode",
        "force_stop",
        "ignore_proposal_cache",
        "min_valid_partition_ratio",
        "skip_rack_awareness_check",
        "skip_urp_demotion",
        "stop_external_agent",
        "throttle_added_broker",
        "throttle_removed_broker",
        "use_ready_default_goals",
    }
)
_UNPLANNED = EVERYWHERE | {"dryrun", "stop_ongoing_execution"}


class Parameters:
    """The parameters of one request; names are not case-sensitive.

    Parameters
    ----------
    endpoint
        Name of the endpoint, for messages.
    given
        Names and values as they were sent.
    known
        Names that the endpoint takes, besides those that every one takes.

    Raises
    ------
    RequestError
        For an unknown name, or one that is given twice.

    Examples
    --------
    >>> found = Parameters("load", [("JSON", "True")], ())
    >>> found.flag("json"), found.flag("verbose")
    (True, False)
    """

    def __init__(
        self, endpoint: str, given: Iterable[tuple[str, str]], known: Iterable[str]
    ) -> None:
        self._values: dict[str, str] = {}
        allowed = EVERYWHERE | frozenset(known)
        unknown = []
        for name, value in given:
            key = name.lower()
            if key not in allowed:
                unknown.append(name[:100])
            elif self._values.setdefault(key, value) != value:
                raise RequestError(f"parameter {key}: two values found, one expected")
        if unknown:
            raise RequestError(
                f"Unrecognized endpoint parameters in {endpoint} request: {unknown}. "
                f"One of {', '.join(sorted(allowed))} expected."
            )

    @property
    def all(self) -> tuple[tuple[str, str], ...]:
        """All names and values: the same for the same request."""
        return tuple(sorted(self._values.items()))

    @property
    def planned(self) -> tuple[tuple[str, str], ...]:
        """What a plan depends on: the same for a dry run and for the request to execute it."""
        return tuple(sorted((k, v) for k, v in self._values.items() if k not in _UNPLANNED))

    @property
    def without_effect(self) -> list[str]:
        """Parameters that were given and change nothing here."""
        return sorted(WITHOUT_EFFECT & self._values.keys())

    def given(self, names: Iterable[str]) -> list[str]:
        """Which of these parameters were given."""
        return sorted(set(names) & self._values.keys())

    @property
    def reason(self) -> str:
        """The reason that was given, as much of it as is kept."""
        return self._values.get("reason", "")[:LONGEST_REASON]

    def text(self, name: str) -> str | None:
        """A value; None if it was not given."""
        return self._values.get(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """Whether a value is ``true``."""
        found = self._values.get(name)
        if found is None:
            return default
        if found.lower() not in ("true", "false"):
            raise RequestError(f"parameter {name}: {shown(found)} found, true or false expected")
        return found.lower() == "true"

    def number(self, name: str) -> int | None:
        """A whole number of at least 0; None if it was not given."""
        found = self._values.get(name)
        if found is not None and not re.fullmatch(r"[0-9]{1,15}", found):
            raise RequestError(f"parameter {name}: {shown(found)} found, a number expected")
        return None if found is None else int(found)

    def items(self, name: str) -> tuple[str, ...]:
        """A list, separated by commas; empty if it was not given."""
        return tuple(part.strip() for part in self._values.get(name, "").split(",") if part.strip())

    def brokers(self, name: str, known: Mapping[str, int | str]) -> tuple[int | str, ...]:
        """A list of brokers, with ids as the cluster has them.

        Raises
        ------
        RequestError
            For one that does not exist, in words that clients look for.
        """
        found = self.items(name)
        for broker in found:
            if broker not in known:
                raise RequestError(
                    f"IllegalArgumentException: Broker {broker[:100]} does not exist.", 500
                )
        return tuple(dict.fromkeys(known[broker] for broker in found))

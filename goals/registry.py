"""Finds goals by name, built in or installed, and loads lists of them from files."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cluster_model.snapshot import Snapshot
from goals.availability import EligibleLeaders, OnlineReplicas
from goals.capacity import (
    HostCapacity,
    PotentialNetworkOut,
    RackFailureCapacity,
    ReplicaCapacity,
    ResourceCapacity,
    TransientCapacity,
)
from goals.collocation import CollocationGoal
from goals.costs import BalanceCost, LoadCost, MoveCost, Price
from goals.disks import DiskCapacity, DiskUsageDistribution
from goals.distribution import (
    LeaderBytesInDistribution,
    LeaderReplicaDistribution,
    ReplicaDistribution,
    UsageDistribution,
)
from goals.goal import Goal, GoalError
from goals.grouped import GroupCapacity, GroupUsageDistribution
from goals.leadership import PreferredLeader, PreferredLeaderRack
from goals.network import NetworkInUsageDistribution, NetworkOutUsageDistribution
from goals.patterns import glob_hint, matching
from goals.racks import (
    BrokerSetAwareness,
    RackAwareDistribution,
    RackAwareness,
    TopicRackDistribution,
)
from goals.relations import Apart, Near, SpreadAcross
from goals.topics import MinTopicLeaders, TopicLeaderDistribution, TopicReplicaDistribution
from metrics_reporter.documents import (
    load_mapping,
    parse_yaml,
    shown,
    shown_name,
)
from metrics_reporter.plugins import Model, Plugins, validated
from metrics_reporter.suggestions import hint

BUILT_IN: dict[str, type[Goal]] = {
    goal.__name__: goal
    for goal in (
        RackAwareness,
        RackAwareDistribution,
        BrokerSetAwareness,
        TopicRackDistribution,
        ReplicaCapacity,
        ResourceCapacity,
        HostCapacity,
        GroupCapacity,
        TransientCapacity,
        RackFailureCapacity,
        PotentialNetworkOut,
        UsageDistribution,
        GroupUsageDistribution,
        ReplicaDistribution,
        LeaderReplicaDistribution,
        LeaderBytesInDistribution,
        TopicReplicaDistribution,
        TopicLeaderDistribution,
        MinTopicLeaders,
        SpreadAcross,
        Apart,
        Near,
        PreferredLeader,
        PreferredLeaderRack,
        DiskCapacity,
        DiskUsageDistribution,
        NetworkInUsageDistribution,
        NetworkOutUsageDistribution,
        OnlineReplicas,
        EligibleLeaders,
        CollocationGoal,
        LoadCost,
        BalanceCost,
        Price,
        MoveCost,
    )
}
PLUGINS: Plugins[type[Goal]] = Plugins(
    group="counterpoise.goals",
    noun="goal",
    built_in={**BUILT_IN},
    accepts=lambda found: inspect.isclass(found) and issubclass(found, Goal),
    expected="a subclass of goals.Goal",
    error=GoalError,
)
_PROFILES = files("goals").joinpath("profiles")
# parts of a configuration that set parameters
_SECTIONS = ("search", "planning")

Config = str | Path | Mapping[str, Any]


def available() -> dict[str, type[Goal]]:
    """Every goal that a configuration can name: built in, then installed ones.

    Raises
    ------
    GoalError
        For an installed goal that cannot be loaded, with the name of its package.
    """
    return PLUGINS.all()


def profiles() -> list[str]:
    """Names of the goal lists included in the package."""
    return sorted(p.name.removesuffix(".yaml") for p in _PROFILES.iterdir())


def load_goals(config: Config = "default") -> list[Goal]:
    """Load configured goals, by tier.

    Parameters
    ----------
    config
        The name of a profile, the path of a YAML or TOML file, or the content of such a
        file: ``{"profile": "default"}`` or ``{"goals": [...]}``. Each goal is its name or
        a mapping of ``goal`` to its name and of its fields. A goal without a tier gets
        its own, after that of the goal before it. Beside these, ``search`` and ``planning``
        may set parameters, see :func:`parameters_of`.

    Raises
    ------
    GoalError
        For an invalid goal or field: its name, the value found and what was expected.
    """
    goals: list[Goal] = []
    content = _content(config)
    try:
        for place, entry in enumerate(_entries(content)):
            goal = _goal(entry, place)
            if goal.tier is None:
                goal = goal.model_copy(update={"tier": (goals[-1].tier or 0) + 1 if goals else 0})
            goals.append(goal)
    except GoalError as error:
        raise GoalError(f"{_where(config)}{error}") from None
    return sorted(goals, key=lambda goal: goal.tier or 0)


def stated_goal(kind: str, stated: Mapping[str, Any]) -> Goal:
    """The goal that a plan states: its class, and its fields with or without its name.

    Raises
    ------
    GoalError
        If the class is not installed, or a field is invalid.
    """
    fields = {k: v for k, v in stated.items() if k != "name"}
    if kind not in BUILT_IN:
        # an installed goal may have another name than its class
        entries = [name for name, found in available().items() if found.__name__ == kind]
        fields["goal"] = entries[0] if entries else kind
    (goal,) = load_goals({"goals": [fields]})
    return goal


def parameters_of(config: Config, section: str, kind: type[Model]) -> Model:
    """The parameters that a goal configuration sets in addition to its goals.

    Parameters
    ----------
    config
        As for :func:`load_goals`. Parameters given next to ``profile`` take precedence over those
        of the profile.
    section
        ``search`` or ``planning``.
    kind
        The class of these parameters.

    Raises
    ------
    GoalError
        For an invalid parameter: its name, the value found and what was expected.
    """
    content, values = _content(config), dict[str, Any]()
    own = _profile(content["profile"]) if content.get("profile") in profiles() else {}
    for found in (own.get(section, {}), content.get(section, {})):
        if not isinstance(found, Mapping):
            raise GoalError(
                f"{_where(config)}{section}: {shown(found)} found, a mapping of parameters to "
                "values expected"
            )
        values |= found
    return validated(kind, values, f"{_where(config)}{section}", GoalError)


def goals_for(snapshot: Snapshot, config: Config = "default") -> list[Goal]:
    """Configured goals that apply to a snapshot, by tier.

    Goals of a profile for which the snapshot lacks data are left out; in an explicit list
    they are an error.

    Raises
    ------
    GoalError
        As for :func:`load_goals` and :func:`applicable`.
    """
    return applicable(load_goals(config), snapshot, strict=profile_of(config) is None)


def applicable(goals: Sequence[Goal], snapshot: Snapshot, strict: bool) -> list[Goal]:
    """The goals for which the snapshot has the required data.

    Parameters
    ----------
    goals, snapshot
        The goals, and the snapshot.
    strict
        Whether a goal that does not apply is an error; otherwise it is left out.

    Raises
    ------
    GoalError
        For a goal that does not apply, with its name and the missing data.
    """
    left_out = inapplicable(goals, snapshot)
    if strict and left_out:
        raise GoalError(next(iter(left_out.values())))
    return [goal for goal in goals if goal.name not in left_out]


def inapplicable(goals: Sequence[Goal], snapshot: Snapshot) -> dict[str, str]:
    """Goals that do not apply to a snapshot -> the missing data, in one sentence."""
    lacking = {goal.name: _lacks(goal, snapshot) for goal in goals}
    return {name: f"goal {name}{lack}" for name, lack in lacking.items() if lack is not None}


def unmatched(goals: Sequence[Goal], snapshot: Snapshot, strict: bool) -> list[str]:
    """One sentence for each pattern of the goals that matches no topic of a snapshot.

    Parameters
    ----------
    goals, snapshot
        The goals, and the snapshot.
    strict
        Whether to report goals without any pattern too.
    """
    return [
        f"goal {goal.name}, field {field}: {pattern!r} matches none of the snapshot's topics"
        f"{glob_hint(pattern)}"
        for goal in goals
        for field, pattern in goal.topic_patterns().items()
        if (pattern or strict) and not matching(pattern, snapshot.topics).any()
    ]


def _lacks(goal: Goal, snapshot: Snapshot) -> str | None:
    """The data a goal reads (its scope, `resource` and `requires`) that a snapshot lacks.

    The rest of a sentence that begins with the goal's name; None if nothing is missing.
    """
    resources = ", ".join(snapshot.resources) or "none"
    resource = getattr(goal, "resource", None)
    if resource is not None and resource not in snapshot.resources:
        return f": the snapshot has no resource {resource!r}; it has {resources}"
    if lack := goal.scope.lacks(snapshot):
        return f": the snapshot has no {lack}"
    for needed in goal.requires:
        if needed == "broker sets":
            if not snapshot.broker_sets:
                return ": the snapshot has no broker sets"
        elif needed == "traffic":
            if not len(snapshot.traffic_rate):
                return ": the snapshot has no traffic between partitions"
        elif " attribute " in needed:
            of, _, name = needed.partition(" attribute ")
            known = snapshot.broker_attributes if of == "broker" else snapshot.topic_attributes
            if name not in known:
                return f": the snapshot has no {of} attribute {name!r}"
        elif needed == "copies":
            if not len(snapshot.copy_lag):
                return ": the snapshot has no lag of copies"
        elif needed not in snapshot.resources:
            return f": the snapshot has no resource {needed!r}; it has {resources}"
    return None


def profile_of(config: Config) -> str | None:
    """The profile that a configuration names, if any.

    Raises
    ------
    GoalError
        If the file cannot be read.
    """
    profile = _content(config).get("profile")
    return None if profile is None else str(profile)


def _where(config: Config) -> str:
    """Beginning of messages about a file; nothing for a profile or a mapping."""
    named = isinstance(config, Mapping) or (isinstance(config, str) and config in profiles())
    return "" if named else f"goals file {shown_name(str(config))}: "


def _profile(name: str) -> Mapping[str, Any]:
    """The content of a profile."""
    content: Mapping[str, Any] = parse_yaml(
        _PROFILES.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    )
    return content


def _goals_only(content: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in content.items() if key not in _SECTIONS}


def _content(config: Config) -> Mapping[str, Any]:
    """The content of a configuration, in the form of a file."""
    if isinstance(config, Mapping):
        return config
    if isinstance(config, str) and config in profiles():
        return {"profile": config}
    return _read(Path(config))


def _entries(content: Mapping[str, Any]) -> list[Any]:
    """The goals listed by a configuration or by its profile."""
    content = _goals_only(content)
    profile = content.get("profile")
    if profile is not None:
        if set(content) != {"profile"}:
            others = shown_name(", ".join(sorted(map(str, set(content) - {"profile"}))))
            raise GoalError(f"goals: profile and {others} found, either of them alone expected")
        if profile not in profiles():
            near = hint(str(profile), profiles())
            raise GoalError(
                f"goals: profile {shown(profile)} found, {_or(profiles())} expected{near}"
            )
        content = _goals_only(_profile(profile))
    entries = content.get("goals")
    if set(content) == {"goals"} and (
        not isinstance(entries, Sequence) or isinstance(entries, str)
    ):
        raise GoalError(f"goals: {shown(entries)} found, a list of goals expected")
    if set(content) != {"goals"}:
        found = shown_name(", ".join(sorted(map(str, content)))) or "nothing"
        raise GoalError(
            f"goals: {found} found, either a profile (one of {_or(profiles())}) or a list "
            "of goals expected"
        )
    if not entries:
        raise GoalError("goals: an empty list found, at least one goal expected")
    return list(entries)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        path.stat()
    except FileNotFoundError:
        raise GoalError(
            f"goals: {shown(str(path))} found, a file or a profile ({_or(profiles())}) expected"
            f"{hint(str(path), profiles())}"
        ) from None
    except (OSError, ValueError):
        # Reading the file reports the error.
        pass
    return load_mapping(path, f"goals file {shown_name(str(path))}", GoalError, "a goals file")


def _goal(entry: Any, place: int) -> Goal:
    fields = {"goal": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, Mapping) or not isinstance(fields.get("goal"), str):
        raise GoalError(
            f"goals, entry {place}: {shown(entry)} found, a name or a mapping with `goal` expected"
        )
    name = fields["goal"]
    try:
        return _class(name, place).model_validate({k: v for k, v in fields.items() if k != "goal"})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        field = f", field {where}" if where else ""
        if first["type"] == "missing":
            raise GoalError(f"goal {name}{field}: none found, a value expected") from None
        if first["type"] == "extra_forbidden":
            known = _class(name, place).model_fields
            raise GoalError(
                f"goal {name}{field}: not a field of it; it has {', '.join(known)}"
                f"{hint(where, known)}"
            ) from None
        reason = first["msg"].removeprefix("Value error, ")
        found = first["input"] if where else dict(fields)
        raise GoalError(f"goal {name}{field}: {shown(found)} found; {_lower(reason)}") from None


def _class(name: str, place: int) -> type[Goal]:
    return PLUGINS.get(name, f"goals, entry {place}: ")


def _or(names: Sequence[str]) -> str:
    return ", ".join(names)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]

"""Prints a plan as tables: what changes, what each goal gains, what is unmet and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from balancer import Action, Plan, PlanDocument
from balancer.cli.layout import Rows
from balancer.planning.document import Sizing, limit_reached
from balancer.planning.merged_reasons import MergedReason, merged_reasons, merged_remedies
from balancer.planning.relief import relief_phrase
from balancer.planning.why_not import WhyNot
from balancer.problem.verdict import Verdict
from cluster_model.units import quantity
from metrics_reporter.quantities import cost_amount, percent, plural, times

AnyPlan = Plan | PlanDocument


def overview(plan: AnyPlan) -> Text:
    """Moves and what they cost, in a few lines."""
    s = plan.summary
    changes = (
        (s.replica_moves, "replica move", None),
        (s.leadership_moves, "leadership transfer", None),
        (s.disk_moves, "move between disks", "moves between disks"),
        (s.replicas_added, "new replica", None),
        (s.replicas_removed, "replica removed", "replicas removed"),
    )
    said = [plural(n, one, more) for n, one, more in changes if n]
    share = f" ({percent(s.cost / s.cost_total)} of all)" if s.cost_total else ""
    lines = [f"{plan.operation['kind']}: {', '.join(said) or 'nothing to do'}"]
    if s.cost:
        unit = s.cost_unit
        does = "copies" if unit == "bytes" else "costs"
        least = f"; no plan meeting these goals {does} less than {cost_amount(s.cost_bound, unit)}"
        lines.append(f"{does} {cost_amount(s.cost, unit)}{share}" + (least if s.cost_bound else ""))
    if s.group_moves:
        grouped = sum(a.group is not None for a in plan.actions)
        lines.append(
            f"{plural(grouped, 'replica')} that communicate with each other move in "
            f"{plural(s.group_moves, 'group')}"
        )
    if (a := plan.allocation) is not None:
        lines.append(
            f"{a.strategy}: load distance of {a.resource} {a.distance_before:.2f} -> "
            f"{a.distance_after:.2f} percentage points, {a.distance_bound:.2f} at best; "
            f"communication kept local {percent(a.local_before)} -> {percent(a.local_after)}"
        )
    lines.append(f"balancedness {s.balancedness_before:.1f} -> {s.balancedness_after:.1f} of 100")
    if plan.relief:
        paid = "bytes" if s.cost_unit == "bytes" else "cost"
        lines.append(f"of the improvement of its goals: {relief_phrase(plan.relief, paid)}")
    if s.exhausted:
        lines.append(f"ended early: {limit_reached(s.exhausted, plan.budget, s.limited_moves)}")
    if s.left_out:
        lines.append(
            f"{plural(s.left_out, 'action')} left out, for which no safe order of steps was found"
        )
        if s.blocked:
            lines.append(f"the first of them: {s.blocked}")
    return Text("\n".join(lines))


def columns(plan: AnyPlan) -> Rows:
    """What the fullest broker carries, and its ratio to a fair share."""
    table = Rows(
        "resource", "mean>", "fullest before>", "after>",
        "× fair share before>", "after>", "at best>", title="Load of brokers",
    )  # fmt: skip
    for name, c in plan.columns.items():
        table.add(
            name,
            quantity(name, c.after.mean),
            quantity(name, c.before.max),
            quantity(name, c.after.max),
            times(c.before.worst_ratio),
            times(c.after.worst_ratio),
            times(c.worst_ratio_bound),
        )
    return table


def goals(plan: AnyPlan) -> Rows:
    """Each goal before and after: whether it is met, and its discontented cells."""
    table = Rows(
        "tier>", "goal!", "kind", "not content before>", "after>", "contentment>", "",
        title="Goals",
    )  # fmt: skip
    for g in plan.goal_results:
        now = "[green]met[/]" if g.met_after else "[red]unmet[/]" if g.hard else "[yellow]unmet[/]"
        table.add(
            str(g.tier),
            escape(g.goal),
            "hard" if g.hard else "soft",
            str(g.unmet_cells_before),
            str(g.unmet_cells_after),
            f"{percent(g.contentment_before).removesuffix(' %')} -> {percent(g.contentment_after)}",
            now,
        )
    return table


def unmet(plan: AnyPlan) -> RenderableType:
    """Unmet goals: first those that no placement can meet, then those the search missed."""
    parts: list[str] = []
    titles = {True: "Cannot be met by any placement", False: "Not reached"}
    for proven, title in titles.items():
        found = [u for u in plan.unmet if u.proven is proven]
        if found:
            parts.append(f"[bold]{title}[/]")
        for reason in merged_reasons(found):
            parts.append(f"  {_of_goals(reason)}: {escape(reason.text)}")
    remedy = plan.remedy
    remedies = merged_remedies(plan.unmet, remedy)
    if remedies:
        parts.append("[bold]What would help[/]")
    for reason in remedies:
        parts.append(f"  {_of_goals(reason)}: {escape(reason.text)}")
    if remedy is not None:
        how = "tried: a plan then meets" if remedy.tried else "not tried; fewer cannot meet"
        goals = escape(", ".join(remedy.goals))
        parts.append(f"[bold]Remedy[/]\n  {escape(remedy.text)} ({how} {goals})")
    return Text.from_markup("\n".join(parts) or "[green]All goals are met.[/]")


def _of_goals(reason: MergedReason) -> str:
    """The goals that a reason or a remedy is true of, with their number if there are several."""
    count = f" ({len(reason.goals)} goals)" if len(reason.goals) > 1 else ""
    names = escape(", ".join(reason.goals)) + count
    return f"[red]{names} (hard)[/]" if reason.hard else names


def verdict(of: Verdict) -> Text:
    """Whether the operation is fulfilled: the most important fact about a plan."""
    sentence = of.sentence[:1].upper() + of.sentence[1:]
    return Text(f"{sentence}.", style="bold green" if of.fulfilled else "bold yellow")


def sizing(of: Sizing) -> Text:
    """How many brokers are needed, and what of the plan does not exist yet."""
    text = Text(f"{of.text[:1].upper()}{of.text[1:]}.")
    text.stylize("bold green" if of.met else "bold yellow")
    if of.added:
        text.append(
            "\nThis plan is for the cluster with the brokers to add: add them, then plan again."
        )
    return text


def report(plan: AnyPlan) -> RenderableType:
    """All of the above."""
    parts: list[RenderableType] = [] if plan.verdict is None else [verdict(plan.verdict), ""]
    if plan.sizing is not None:
        parts = [sizing(plan.sizing), "", *parts]
    if plan.warnings:
        parts += [Text("\n".join(f"Warning: {warning}" for warning in plan.warnings)), ""]
    parts += [overview(plan), "", columns(plan), "", goals(plan), ""]
    parts.append(unmet(plan))
    return Group(*parts, *remarks(plan))


def remarks(plan: AnyPlan) -> list[RenderableType]:
    """Goals that the profile left out."""
    lines = [f"Left out: {reason}" for reason in plan.goals_left_out.values()]
    return ["", Text("\n".join(lines))] if lines else []


def why_not(answers: Sequence[WhyNot]) -> RenderableType:
    """The most promising action that would put a partition on a broker, and others in a line."""
    best, *others = answers
    table = Rows(
        "tier>", "goal!", "kind", "now>", "then>", "",
        title="Contentment (the lowest of what the action touches; of costs, the mean)",
    )  # fmt: skip
    words = {"helps": "[green]helps[/]", "stops": "[red]stops it[/]", "worse": "worse", "none": ""}
    for g in best.goals:
        table.add(
            str(g.tier),
            escape(g.goal),
            "hard" if g.hard else "soft",
            f"{100 * g.before:.4g}",
            f"{100 * g.after:.4g}",
            words[g.effect],
        )
    action = best.action[:1].upper() + best.action[1:]
    unit = best.cost_unit
    left = [] if best.moves_left is None else [plural(best.moves_left, "move")]
    left += [] if best.cost_left is None else [cost_amount(best.cost_left, unit)]
    limits = f"{' and '.join(left)} left of the plan's limits" if left else "the plan has no limit"
    lines = [f"{action}, at the end of the plan:", best.verdict]
    lines.append(f"Cost: {cost_amount(best.cost, unit)}; {limits}.")
    parts: list[RenderableType] = [Text("\n".join(lines)), "", table]
    if others:
        parts += ["", Text("\n".join(f"Or {other.action}: {other.verdict}" for other in others))]
    return Group(*parts)


def actions(
    numbered: Iterable[tuple[int, Action]], unit: str, title: str, all_goals: bool = False
) -> Rows:
    """Actions with their place in the plan, and the goals they serve."""
    table = Rows(
        "step>", "what", "partition!", "from", "to", "copies>" if unit == "bytes" else "cost>",
        "why~", title=title,
    )  # fmt: skip
    for number, a in numbered:
        table.add(
            str(number),
            a.kind.replace("_", " ") + (" (leader)" if a.leader and a.kind != "leadership" else ""),
            escape(f"{a.topic}-{a.partition}")
            + ("" if a.group is None else f" (group {a.group + 1})"),
            _where(a.source, a.source_disk),
            _where(a.destination, a.destination_disk),
            escape(cost_amount(a.cost, unit)) if a.cost else "-",
            _why(a, None if all_goals else 3),
        )
    return table


def _where(broker: int | str | None, disk: str | None) -> str:
    return "-" if broker is None else escape(f"{broker}:{disk}" if disk else str(broker))


def _why(action: Action, most: int | None) -> str:
    def ranked(effects: dict[str, float]) -> list[tuple[str, float]]:
        return sorted(effects.items(), key=lambda item: -item[1])

    helped = ranked(action.helped)
    shown = [f"{escape(goal)} +{_points(by)}" for goal, by in helped[:most]]
    if len(helped) > len(shown):
        shown.append(f"and {len(helped) - len(shown)} more")
    shown += [
        f"[yellow]{escape(goal)} -{_points(by)}[/]" for goal, by in ranked(action.hurt)[:most]
    ]
    if not shown and action.kind in ("add", "remove"):
        return "the replication factor asked for"
    return ", ".join(shown) or "makes room, or undoes a detour"


def _points(by: float) -> str:
    return f"{100 * by:.2g}"

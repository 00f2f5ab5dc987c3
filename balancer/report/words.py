"""Phrases numbers and plans for an operator on call."""

from __future__ import annotations

from balancer.planning.document import Unmet
from balancer.planning.plan import Plan
from metrics_reporter.quantities import cost_amount, plural


def copied(plan: Plan) -> str:
    """What the plan's moves cost, and the least that any such plan must; empty for none."""
    s = plan.summary
    if not s.cost:
        return ""
    text = cost_amount(s.cost, s.cost_unit)
    if s.cost_bound > 0:
        ratio = s.cost / s.cost_bound
        text += ", the proven minimum" if ratio < 1.005 else f", {ratio:.3g} × the proven minimum"
    return text


def operation_title(plan: Plan) -> str:
    """The operation as a heading, for example ``Remove brokers 3, 4``."""
    words = str(plan.operation["kind"]).replace("_", " ").capitalize()
    ids = [str(i) for i in plan.operation.get("brokers", ())]
    if len(ids) == 1:
        words = words.removesuffix("s")
    more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
    return f"{words} {', '.join(ids[:10])}{more}".strip()


def goal_list(plan: Plan, profile: str | None) -> str:
    """The goals by tier, after the name of the profile or file that they are from."""
    tiers: dict[int, list[str]] = {}
    for g in plan.goal_results:
        tiers.setdefault(g.tier, []).append(f"{g.goal} (hard)" if g.hard else g.goal)
    said = "; ".join(f"tier {tier}: {', '.join(names)}" for tier, names in sorted(tiers.items()))
    return said if profile is None else f"{profile}: {said}"


def verdict(plan: Plan) -> str:
    """The operation's result; what the plan does and costs, what stays unmet, the remedy."""
    return " ".join(filter(None, verdict_parts(plan)))


def verdict_parts(plan: Plan) -> tuple[str, str]:
    """The operation's result, empty for a rebalance; then what the plan does, and the rest."""
    results = [
        text
        for text in (
            None if plan.sizing is None else plan.sizing.text,
            None if plan.verdict is None else plan.verdict.sentence,
        )
        if text is not None
    ]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in results), _rest(plan)


def _rest(plan: Plan) -> str:
    does = _does(plan)
    goals = len(plan.goal_results)
    unmet = [g for g in plan.goal_results if not g.met_after]
    if not unmet:
        already = "" if len(plan) else " already"
        return f"{does}; all {plural(goals, 'goal')} {'is' if goals == 1 else 'are'} met{already}."
    hard = sum(g.hard for g in unmet)
    text = f"{does}; {len(unmet)} of {plural(goals, 'goal')} {_stay(len(unmet))} unmet"
    if hard:
        text += f" ({hard} hard)"
    proven = [u for u in plan.unmet if u.proven]
    if proven:
        names = sorted({u.goal for u in proven})
        kind = "hard" if proven[0].hard else "soft"
        which = f"{names[0]} ({kind})" if len(names) == 1 else f"{len(names)} of them"
        text += f"; {which} cannot be met by any placement: {_remedy(plan, proven)}"
    return text + "."


def _stay(count: int) -> str:
    return "stays" if count == 1 else "stay"


def _does(plan: Plan) -> str:
    s = plan.summary
    steps = (
        (s.replicas_added, "adds", "replica"),
        (s.replicas_removed, "removes", "replica"),
        (s.replica_moves, "moves", "replica"),
        (s.disk_moves, "moves between disks", "replica"),
        (s.leadership_moves, "transfers", "leadership"),
    )
    parts = [f"{verb} {plural(count, noun)}" for count, verb, noun in steps if count]
    if not parts:
        return "Changes nothing"
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    size = copied(plan)
    does = "copies" if plan.summary.cost_unit == "bytes" else "costs"
    return text[0].upper() + text[1:] + (f" ({does} {size})" if size else "")


def _remedy(plan: Plan, proven: list[Unmet]) -> str:
    """What would help: the remedy of the plan, else that of the first proven goal."""
    if plan.remedy is not None:
        return plan.remedy.text
    return next((u.remedy for u in proven if u.remedy), proven[0].reason)

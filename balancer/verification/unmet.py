"""Checks the statements of a plan about unmet goals: proofs, reasons, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from balancer.planning.document import PlanDocument, RelaxedLimit, Remedy, Unmet
from balancer.verification.stated_request import StatedRequest
from cluster_model.snapshot import Bools, Ints
from goals import Infeasibility
from metrics_reporter.quantities import distinct, plural

_LOST = (
    "every replica is on a dead broker or a dead disk",
    "bring one of them back: there is nothing left to copy from",
)
_WARMING = (
    "the replicas that could lead are still warming up",
    "plan again when their lag is acceptable, or accept more",
)
# what earlier versions say of any goal that is unmet where a limit was reached, and nothing more
_FORMER = {
    "budget": "the limit on moves or cost was reached",
    "seconds": "the limit on seconds was reached",
}
_NO_ORDER = "a placement meets it, but no safe order of steps to it was found"
_UNLOCK = "allow more where the steps are blocked while the plan runs, or add brokers with room"
_REBALANCE = "rebalance after this plan"
_HEALED = "add brokers, or raise the limit"
_MORE = "allow more, or plan again"
_ACTION = r"(moving|transferring the leadership of) .+?"
_RULES = (
    "partitions that Kafka is reassigning",
    "frozen partitions",
    "excluded topics",
    "excluded partitions",
    "brokers excluded from receiving replicas",
    "brokers whose log directories are cordoned",
    "brokers that are not among the destinations",
    "topics limited to other brokers",
    "copies on dead disks",
    "brokers that may not lead",
    "replicas that are still warming up",
    "replicas that must leave their broker",
    "replicas on dead disks",
)
_OF_OPERATIONS = (
    "leaves other replicas in place",
    "lets no other brokers receive replicas",
    "serves no other brokers",
)


@dataclass(frozen=True)
class UnmetGoal:
    """The replay's result on a goal that is not met at the end.

    Parameters
    ----------
    kind
        Its class.
    scope
        What its cells are.
    noun
        What a report calls one of them.
    cells
        Discontented cells; None if unknown.
    proofs
        What the goal itself proves about the start; None if unknown.
    used
        The limit that the steps keep in place of its own; None for its own.
    elsewhere
        Whether the placement that the plan states as unreached meets it, as far as is known.
    """

    kind: str
    scope: str
    noun: str
    cells: Ints | None
    proofs: Sequence[Infeasibility] | None
    used: RelaxedLimit | None = None
    elsewhere: bool = False


def unmet_faults(
    plan: PlanDocument, request: StatedRequest, lost: Bools, left: Callable[[str], UnmetGoal]
) -> Iterator[tuple[str, str]]:
    """Errors in the list of unmet goals: a kind, and a sentence.

    Parameters
    ----------
    plan
        The plan to check.
    request
        Which brokers may hold replicas, and what may be touched.
    lost : (P,) bool
        Partitions without a living replica.
    left
        The replay's results, by goal name.
    """
    results = {g.goal: g for g in plan.goal_results}
    expected = [g.goal for g in plan.goal_results if not g.met_after]
    names = list(dict.fromkeys(u.goal for u in plan.unmet))
    if names != expected:
        yield "unmet", f"unmet: {names} stated, {expected} found"
    exhausted = plan.summary.exhausted
    if exhausted not in (None, "seconds", "budget", "stopped"):
        yield "exhausted", f"exhausted: {exhausted!r} found, seconds, budget or stopped expected"
    for name in names:
        entries = [u for u in plan.unmet if u.goal == name]
        result = results.get(name)
        if result is None:
            continue
        if any(u.hard != result.hard for u in entries):
            yield "unmet", f"unmet: {name}: hard is wrong"
        found = left(name)
        if found.proofs is None:
            continue
        if found.proofs:
            if [_proof(u) for u in entries] != [_proof(o) for o in found.proofs] or not all(
                u.proven for u in entries
            ):
                yield "proven", f"unmet: {name}: its proof is: {found.proofs[0].reason}"
            continue
        if len(entries) > 1:
            yield (
                "proven",
                f"unmet: {name}: {plural(len(entries), 'entry', 'entries')}, and no proof found",
            )
            continue
        count = result.unmet_cells_after
        yield from _unproven(plan, request, lost, entries[0], found, count)


def _proof(entry: Unmet | Infeasibility) -> tuple[str, str, int, int, str]:
    return entry.reason, entry.remedy, entry.brokers_to_add, entry.racks_to_add, entry.broker_set


def _unproven(
    plan: PlanDocument,
    request: StatedRequest,
    lost: Bools,
    entry: Unmet,
    found: UnmetGoal,
    count: int,
) -> Iterator[tuple[str, str]]:
    """Errors in an entry that no goal proves."""
    if (entry.brokers_to_add, entry.racks_to_add, entry.broker_set) != (0, 0, ""):
        yield "proven", f"unmet: {entry.goal}: brokers to add are stated without a proof"
    what = f"{plural(count, found.noun)} not content"
    if found.scope == "partition" and found.cells is not None and len(found.cells):
        what += f" ({_named(request, found.cells)})"
    elif found.cells is None and (given := re.match(rf"{what}( \(.+?\))?(?=: )", entry.reason)):
        what = given[0]
    hard = any(g.get("hard") for g in plan.goals if g.get("name") == entry.goal)
    out = plan.summary.left_out
    of_time = plan.summary.exhausted in ("seconds", "stopped")
    why = "had no safe order and were left out"
    if of_time:
        why = "were left out before a safe order was found"
    end = f"; {plural(out, 'action')} {why}" if out else ""
    former = _FORMER.get(plan.summary.exhausted or "")
    if former and (entry.reason, entry.remedy) == (f"{what}: {former}{end}", _MORE):
        if entry.proven:
            yield "proven", f"unmet: {entry.goal}: proven True stated, no proof found"
        return
    proven, accepted = _accepted_reasons(plan, entry, hard, request, lost, found)
    if entry.proven != proven:
        truth = "no replica is left to copy from" if proven else "no proof found"
        yield "proven", f"unmet: {entry.goal}: proven {entry.proven} stated, {truth}"
    if found.elsewhere:
        accepted += [(rf"{_NO_ORDER}( \(.+?\))?; {why}", _UNLOCK) for why, _ in accepted]
    remedies = []
    said = _between(entry.reason, f"{what}: ", "" if proven else end)
    for why, remedy in accepted:
        # only what many plans share is in the pattern, which is then compiled once for them
        if said is not None and re.fullmatch(why, said):
            remedies.append(remedy)
    if entry.remedy in remedies:
        return
    if remedies:
        expected = " or ".join(map(repr, dict.fromkeys(remedies)))
        yield "unmet", f"unmet: {entry.goal}: remedy {entry.remedy!r} stated, {expected} expected"
        return
    known = " or ".join(re.sub(r"\\(.)", r"\1", why.split("(")[0]) for why, _ in accepted)
    yield (
        "unmet",
        f"unmet: {entry.goal}: {entry.reason!r}, remedy {entry.remedy!r} stated, "
        f"{what}: {known}{end} expected",
    )


def _between(text: str, start: str, end: str) -> str | None:
    """What is between a start and an end; None if the text does not begin and end so."""
    whole = len(text) >= len(start) + len(end) and text.startswith(start) and text.endswith(end)
    return text[len(start) : len(text) - len(end)] if whole else None


def _limits(plan: PlanDocument) -> list[str]:
    """What the reasons may name as the limit that was reached; none if there was none.

    Moves if they are spent, else the others that are set. Earlier versions did not tell them apart.
    """
    budget, s = plan.budget, plan.summary
    if s.exhausted is None:
        return []
    if s.exhausted == "stopped":
        return ["the search was stopped"]
    if s.exhausted == "seconds":
        return ["the limit on seconds was reached"]
    if (
        budget.moves is not None
        and s.replica_moves + s.disk_moves + s.replicas_added >= budget.moves
    ):
        return ["the limit on moves was reached", _FORMER["budget"]]
    others = {
        "cost": budget.cost,
        "moves per broker": budget.moves_per_broker,
        "moves per rack": budget.moves_per_rack,
    }
    names = [name for name, limit in others.items() if limit is not None] or ["moves"]
    return [f"limited by {' and '.join(names)}", _FORMER["budget"]]


def _accepted_reasons(
    plan: PlanDocument,
    entry: Unmet,
    hard: bool,
    request: StatedRequest,
    lost: Bools,
    found: UnmetGoal,
) -> tuple[bool, list[tuple[str, str]]]:
    """Whether an unmet goal counts as proven; patterns of its reasons, with their remedies."""
    limits = _limits(plan)
    known = found.scope == "partition" and found.cells is not None
    cells = found.cells if known and found.cells is not None else np.empty(0, np.int64)
    still = request.untouched[cells]
    if len(cells) and still.all():
        return False, [_left_alone(request, cells)]
    if found.kind == "ReplicationFactor" and limits:
        return False, [_text(limit, _MORE) for limit in limits]
    if found.kind == "ReplicationFactor":
        rest = cells[~(still | lost[cells])]
        if not len(rest):
            return (
                (False, [_left_alone(request, cells[still])])
                if still.any()
                else (True, [_text(*_LOST)])
            )
        where = re.escape(f"none of the {plural(int(request.receives.sum()), 'broker')}")
        return False, [
            _text(
                "the last living replica is kept until the others are restored from it",
                "plan again after this plan",
            ),
            _text(
                "no room was found for them before other replicas were moved",
                "plan again after this plan",
            ),
            (
                f"{where} that may receive replicas can take one more( within {_vetoes(plan)})?"
                r"( \(\d+ of \d+ partitions examined\))?",
                "add brokers, raise the limits, or ask for fewer replicas",
            ),
        ]
    if found.kind in ("OnlineReplicas", "EmptyBrokers") and lost[cells].all():
        return True, [_text(*_LOST)]
    waiting, warming = {p for p, _ in request.cold}, []
    if found.kind == "EligibleLeaders" and waiting.issuperset(cells.tolist()):
        warming = [_text(*_WARMING)]
    looked = _looked(plan, hard, entry.remedy)
    if found.used is not None:
        configured, used = distinct(found.used.configured, found.used.used)
        why, remedy = f"no placement of all requested replicas keeps {configured}", _REBALANCE
        if found.used.healing:
            why, remedy = f"{configured} yields to what is on dead brokers and disks", _HEALED
        text = f"the steps of this plan keep {found.used.parameter} {used}, because {why}"
        warming.append(_text(text, remedy))
    if limits:
        looked = [(f"{re.escape(limit)}; {why}", _MORE) for limit in limits for why, _ in looked]
    return False, warming + looked


def _longer(plan: PlanDocument, remedy: str) -> str:
    """The stated remedy if it can be that of the plan's strategy, which the plan does not name."""
    budget = plan.budget
    moves = any(limit is not None for name, limit in budget if name != "seconds")
    needs = {
        "plan with a limit of time, which": not moves and budget.seconds is None,
        "plan with a longer limit of time, which": not moves and budget.seconds is not None,
        "plan with a limit of time and none on what is moved": moves,
        "plan without limits on what is moved: the search": moves,
        "plan with more improvement_rounds": not moves,
    }
    wrong = any(remedy.startswith(text) and not true for text, true in needs.items())
    return "one that the limits of the plan allow" if wrong else remedy


def _looked(plan: PlanDocument, hard: bool, remedy: str) -> list[tuple[str, str]]:
    """What may be said of the single actions at the end of a plan, with the remedies."""
    names = [str(g.get("name")) for g in plan.goals]
    names += _guards(plan)
    goal = "|".join(re.escape(name) for name in names)
    kind = re.escape(str(plan.operation["kind"]))
    rule = "|".join([*_RULES, *(f"{kind}, which {leaves}" for leaves in _OF_OPERATIONS)])
    alone = r"(all|[\d,]+) of them alone"
    remark = rf"hard|same tier|tier \d+|no placement meets it|{alone}"
    stopped = _several(
        rf"[\d,]+ by ({goal}|the limit of [^(),;]+)( \(({remark})(, ({remark}))*\))?"
    )
    barred = _several(rf"[\d,]+ by ({rule})( \({alone}\))?")
    some = r"[\d,]+( of [\d,]+)? allowed single actions?( examined)? would help"
    none = (
        r"(no allowed single action helps|of [\d,]+ allowed single actions? examined, none helps)"
    )
    best = rf"the best, {_ACTION}, because .+"
    all_ = f"{some}, and (it is|all are) stopped: {stopped}; {best}"
    forbid = "only rules forbid (it|them): "
    more = rf"; [\d,]+ others? would help, and {forbid}{barred}; {best}"
    limited, free = r"(?=.* by the limit of )", r"(?!.* by the limit of )"
    unruled = rf"(?!.* {forbid})"
    hardly = "add brokers that have room, or raise the limits in the way" if hard else ""
    return [
        (
            rf"{some}, and nothing stops ([\d,]+ of them|it|them), such as {_ACTION}; the search "
            rf"ended without (it|them)(; what stops the rest: {stopped})?",
            _longer(plan, remedy),
        ),
        (f"{limited}{all_}({more})?", _MORE),
        (f"{free}({none}|{all_}){more}", "allow more destinations, or more to be moved"),
        (none, ""),
        (unruled + free + all_, hardly),
    ]


def _several(item: str) -> str:
    return rf"{item}(, {item})*(, others by \d+ more)?"


def _text(reason: str, remedy: str) -> tuple[str, str]:
    return re.escape(reason), remedy


def _left_alone(request: StatedRequest, partitions: Ints) -> tuple[str, str]:
    if request.reassigning[partitions].all():
        return _text("Kafka is reassigning all of them", "plan again when it is done")
    return _text("the operation leaves them alone", "")


def _vetoes(plan: PlanDocument) -> str:
    """A pattern of the possible vetoes of a step: hard goals, and capacities."""
    names = [str(g.get("name")) for g in plan.goals if g.get("hard")]
    names += _guards(plan)
    one = "(" + "|".join(re.escape(name) for name in names) + ")"
    return f"({one}|{one}(, {one})* and {one})"


def _guards(plan: PlanDocument) -> list[str]:
    """What may stop a step besides goals, rules and the budget."""
    hard = [str(g.get("name")) for g in plan.goals if g.get("hard")]
    found = [f"the capacity of {r}" for r in (*plan.columns, "the disks")]
    return found + [f"the total room within {name}" for name in hard]


def _named(request: StatedRequest, partitions: Ints) -> str:
    s, p = request.snapshot, int(partitions[0])
    first = f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}"
    return first + (f" and {len(partitions) - 1} more" if len(partitions) > 1 else "")


def remedy_faults(plan: PlanDocument, request: StatedRequest) -> Iterator[str]:
    """Errors in the remedy, as far as certificates show."""
    if not request.kind.known:
        return
    remedy = plan.remedy
    groups = _groups(plan)
    if request.kind.receivers == "none" or not groups:
        if remedy is not None:
            yield "remedy: stated, but adding brokers would not help"
        return
    if remedy is None or not remedy.tried:
        expected = _at_least(groups[-1])
        if remedy != expected:
            found = "none" if expected is None else repr(expected.text)
            yield f"remedy: {'none' if remedy is None else repr(remedy.text)} stated, {found} found"
        return
    group = next((g for g in groups if remedy.goals == _goals_of(g)), None)
    if group is None:
        yield f"remedy: goals {list(remedy.goals)} stated, {list(_goals_of(groups[0]))} expected"
        return
    asked = max(u.racks_to_add for u in group)
    least = max(1, asked, *(u.brokers_to_add for u in group))
    if remedy.brokers < least:
        yield f"remedy: {plural(remedy.brokers, 'broker')}, at least {least} expected"
    s = request.snapshot
    held = np.bincount(s.broker_rack[request.eligible])
    own = len(s.racks) > 1 and int(held.max(initial=1)) == 1
    racks = remedy.brokers if own else min(remedy.brokers, asked)
    if remedy.racks != racks:
        yield f"remedy: {remedy.racks} new racks stated, {racks} expected"
    if not _places_agree(remedy, request):
        yield f"remedy: {remedy.text!r} is not {plural(remedy.brokers, 'broker')} in as many racks"


def _goals_of(group: Sequence[Unmet]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(u.goal for u in group))


def _groups(plan: PlanDocument) -> list[list[Unmet]]:
    """The goals that a remedy may serve: all hard ones, those proven, or soft ones proven."""
    hard = [u for u in plan.unmet if u.hard]
    chosen = [hard, [u for u in hard if u.proven]]
    if not hard:
        chosen = [[u for u in plan.unmet if u.proven]]
    found = []
    for group in chosen if plan.summary.exhausted is None else chosen[-1:]:
        # a goal that needs something other than brokers is not helped by them
        hopeless = {u.goal for u in group if u.proven and not u.brokers_to_add + u.racks_to_add}
        helped = [u for u in group if u.goal not in hopeless]
        found += [helped] if helped else []
    return found


def _at_least(group: Sequence[Unmet]) -> Remedy | None:
    asking = [u for u in group if u.proven and u.brokers_to_add + u.racks_to_add]
    if not asking:
        return None
    racks = max(u.racks_to_add for u in asking)
    brokers = max(racks, *(u.brokers_to_add for u in asking))
    text = f"add at least {plural(brokers, 'broker')}"
    text += f" in at least {plural(racks, 'more rack')}" if racks else ""
    return Remedy(goals=_goals_of(asking), brokers=brokers, racks=racks, tried=False, text=text)


def _places_agree(remedy: Remedy, request: StatedRequest) -> bool:
    """Whether the sentence names as many brokers and new racks as the numbers do."""
    s = request.snapshot
    new = "a new rack" if remedy.racks == 1 else f"{remedy.racks} new racks"
    racks = [f"rack {name}" for name in s.racks] + ([new] if remedy.racks else [])
    sets = "|".join(re.escape(name) for name in s.broker_sets)
    place = "(?:" + "|".join(re.escape(r) for r in racks) + f")(?: and broker set (?:{sets}))?"
    start = f"add {plural(remedy.brokers, 'broker')}"
    if not remedy.text.startswith(start):
        return False
    rest = remedy.text[len(start) :]
    if re.fullmatch(f" in {place}", rest):
        return True
    if not re.fullmatch(rf": \d+ in {place}(?:, \d+ in {place})+", rest):
        return False
    counts = re.findall(rf"(?:: |, )(\d+) in (?={place})", rest)
    return sum(map(int, counts)) == remedy.brokers

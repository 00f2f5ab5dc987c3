"""Tunable numbers of the local search: effort, thresholds, and when to stop."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, field_validator

from goals.own_types import OwnTypes

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1, le=10**9)]


class SearchParameters(OwnTypes):
    """Tunable numbers of the local search; options of the strategy ``goals``.

    The defaults are those of the figures in the documentation of the benchmarks;
    ``python -m benchmarks run search-parameters`` shows the effect of other values. No value makes
    a plan unsafe: legality and hard goals are checked for every action, whatever is tried.

    Parameters
    ----------
    passes
        Maximum number of passes over all tiers. A later pass uses the room that lower tiers made.
    candidates_per_broker, least_candidates, most_candidates
        Candidates scored per round: for each broker, and at least and at most in total.
    least_per_cell
        Candidates sought for each discontented broker, at least, and for each topic on a broker.
    least_sampled, least_destinations
        Minimum number of replicas examined per discontented broker, and of destinations tried for
        each.
    least_swaps_per_broker
        Swaps sought for each discontented broker, at least.
    full_width_slots
        Replicas per partition up to which that many candidates are scored; proportionally fewer
        if partitions have more, because scoring takes time in proportion to them.
    widening
        Factors by which the candidates of a round grow after 0, 1, 2, ... rounds in a row without
        progress; in the last stage every receiver is a destination, not only those with room.
    idle_rounds
        Rounds in a row without progress after which a tier is left.
    stall_rounds, stall_gain, stall_share
        A tier is also left if this many rounds together lower its penalty by no more than this:
        1 is the penalty of one item that is not content at all; and by no more than this share
        of the penalty, so that what is almost met is not given up.
    stall_rounds_within, stall_share_within
        Under limits on moves or cost, transfers of leadership, and other places for what has moved,
        are tried until this many rounds together bring no more than this share of what all rounds
        for the tier have brought.
    growth, fruitful_share, carried_out_share
        Rounds double, up to this factor, while more than these shares are carried out: of their
        candidates or, if they serve hard goals, of the actions that help and hurt nothing.
    small_round
        With fewer candidates than this share of the replicas, proportionally fewer need to be
        carried out for a round to double.
    swap_share
        Swaps are tried too if a round leaves more than this share of the penalty.
    worst_share
        Under limits on moves or cost: the share of a tier's cells that are not content, worst
        first, that each round relieves.
    nearly_flat
        Under such limits: below this score only cells with hardly higher scores than the worst are
        relieved with it. It is where the curve of distribution goals (seed 004) becomes nearly
        flat; other goals have such scores at a tenth of what they ask for.
    spent_at_once
        Under such limits: the share of what is left that a round may spend on cells that are
        not the worst.
    slow_share
        A round that spends less than this share of what is left relieves too few cells: the next
        one works on twice as many.
    hopeless_excess
        Under limits on moves or cost, a first search without them ends once its placement takes
        more than this many times the limits.
    unlimited_share
        Share of the time, if it is limited too, for a first search without limits on moves: its
        plan stands if it keeps within them.
    annealing_steps, least_annealing_steps
        Moves and swaps tried for each replica, and at least in total, where a tier is annealed and
        no seconds are given.
    annealing_hot, annealing_cold
        Temperature at the start and at the end, in mean increases of the cost by a random step.
    annealing_pilot, annealing_levels, annealing_least_pace
        Least share of the steps for a first run, in which the temperature falls evenly. It shows at
        so many levels of temperature how the cost changes, hence where later runs are slow: at no
        level faster than the slowest pace over this share.
    annealing_thorough
        A run takes so many steps for each replica, if there are as many for two: the best of
        several is kept.
    annealing_settling, annealing_most_settling, annealing_much_lost
        Share of a run's steps, the last ones, that are safe one by one: from the first to the
        second share, the more of the first run's result cannot be reached by safe steps, which
        raises the cost; the most if the rise is this share of it.
    annealing_part, annealing_warm
        After each part of these steps, such a share of the run, only what safe steps lead to is
        kept. And their first temperature.
    annealing_pairs, annealing_homeward
        Share of the steps that are tried between pairs of brokers, many for each pair; the others
        are moves of one replica. And share of the draws that lead a replica back to the start.
    annealing_rows, annealing_columns
        How many replicas of the first broker of such a pair are tried, each alone and in exchange
        for so many of the second: what is read of them stays in the processor's cache.
    annealing_stride
        Steps at one temperature; not fewer than there are replicas.
    annealing_passes
        On the way to what was annealed, how often to look at all replicas whether they can go.
    annealing_detours, annealing_looks
        Where replicas wait for each other on this way: stops of random ones on other brokers that
        are tried in a row before those that still wait are left, and how often to look, in total,
        whether one that waits can go; and afterwards, whether those stops are needed.
    annealing_stops
        The most moves on this way, for each replica.
    lower_tier_weight, lower_tiers
        Weight of the gain of the next lower tier when actions of equal gain are ranked; its
        powers apply to the tiers below that, and so many lower tiers count.
    most_lower_tier_gain
        Share of an action's gain by which the tiers below may raise or lower it.
    action_overhead
        Fixed cost of every action when gain is ranked by cost, in copies of the mean replica.
    kept_gain
        Share of its gain that an action must still bring after the actions before it.
    checked_per_partition
        The best actions of each partition that are checked against vetoes.
    slack_weight
        Weight of room for later actions, relative to contentment now, when swaps are ranked.
    slack_parcel
        Load, as a share of the mean broker, by which brokers are changed to measure this room:
        small enough to represent the next action's load.
    least_swap_gain
        Minimum gain in contentment and weighted room that makes a swap worthwhile.
    pairing_share
        Disjoint swaps are selected in passes until one adds less than this share of the first.
    retried_share
        If at most this share of what has to leave dead and removed brokers stays there, or one
        replica, another search lets the largest go first.
    trivial_share
        A tier's changes are kept if they remove more than this share of its penalty, or of one
        item that is not content at all (any amount if it has a hard goal), or if the lowest score
        that changed is higher by more than this share of it: smaller gains are not worth a move.
    perturbed_replicas
        On clusters of up to this many replicas a round looks at every move, transfer of leadership
        and swap where it would draw as many, and they are retried from random nearby placements
        if a tier remains unmet; 0 for none.
    perturbation_tries
        Failed tries in a row after which the retries of a tier end.
    perturbation_choices
        Moves, and leadership transfers, drawn for each random step, one of which is made.
    explored_placements
        On such clusters, up to this many placements that safe steps lead to are looked at, best
        first, for one that meets more hard goals, if any is unmet; an eighth as many for one that
        is as good and copies less; a quarter as many to see whether safe steps lead where the
        search ends; 0 for none.
    explored_steps
        Steps from each of these placements that are considered, on average.
    second_searches
        On such clusters, the search starts again where it has ended, at most this many times,
        until it finds nothing more; on others, where goals are unmet, a quarter as many times.
    improvement_rounds
        Rounds that disturb the worst cells and repair, once no action helps any more; 0 for none,
        or, if the time is limited and the moves are not, for as many as the time allows.
    futile_improvements
        Failed rounds in a row after which these end before the time does.
    improvement_actions
        Maximum number of random actions of each such round, which are chosen among
        `perturbation_choices`.
    shortening_tries
        On such clusters, some changes are taken back and made again in another way, until this many
        tries in a row reach nothing cheaper, and four times as often at most; 0 for none.
    least_saving
        When the plan is reduced to what the goals need, passes continue while each saves more
        than this share of the bytes moved.
    repeat_share
        Within such a pass, the same candidates are tried again while more than this share of
        them could be undone at once.
    similar_replicas
        Replicas of the next larger, and next smaller, sizes that are tried in exchange for one
        that could return to its broker.
    most_exchanges
        Such exchanges are tried in each pass, at most: those of the largest replicas.
    destination_parcels
        Loads, as shares of the mean broker, largest first, for which brokers with room are
        looked for: the first that enough brokers can take decides the destinations.
    receptive_one_in
        Enough means one in this many receivers, but at least 8.
    group_destinations
        Destinations tried for each group of partitions that belong together.
    group_members
        Partitions of the largest group that is moved as a whole.
    chunk
        Actions scored at once; affects only speed. 32,768 keep intermediate arrays within a
        processor's cache.

    Examples
    --------
    >>> SearchParameters(passes=5).passes
    5
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    passes: Count = 3
    candidates_per_broker: Count = 96
    least_candidates: Count = 2_000
    most_candidates: Count = 160_000
    least_per_cell: Count = 24
    least_sampled: Count = 16
    least_destinations: Count = 6
    least_swaps_per_broker: Count = 64
    full_width_slots: Count = 8
    widening: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 4, 16)
    idle_rounds: Count = 4
    stall_rounds: Count = 12
    stall_gain: float = Field(default=1e-3, ge=0)
    stall_share: Share = 0.25
    stall_rounds_within: Count = 5
    stall_share_within: Share = 0.01
    growth: Count = 8
    fruitful_share: Share = 0.15
    small_round: Positive = 0.12
    carried_out_share: Share = 0.8
    swap_share: Share = 0.95
    worst_share: Positive = 0.1
    nearly_flat: Share = 0.1
    spent_at_once: Positive = 0.125
    slow_share: Share = 0.02
    unlimited_share: Share = 0.25
    annealing_steps: Count = 2_000
    least_annealing_steps: Count = 2_000_000
    annealing_hot: float = Field(default=50.0, gt=0, le=1e6)
    annealing_cold: float = Field(default=0.001, gt=0, le=1e6)
    annealing_settling: Share = 0.15
    annealing_most_settling: Share = 0.5
    annealing_much_lost: Positive = 0.25
    annealing_part: Positive = 0.03
    annealing_warm: float = Field(default=0.04, gt=0, le=1e6)
    annealing_pilot: Positive = 0.1
    annealing_levels: Count = 32
    annealing_least_pace: Positive = 0.25
    annealing_thorough: Count = 1_000_000
    annealing_pairs: Share = 0.87
    annealing_homeward: Share = 0.7
    annealing_rows: Count = 8
    annealing_columns: Count = 64
    annealing_stride: Count = 20_000
    annealing_passes: Count = 64
    annealing_detours: Count = 5_000
    annealing_looks: Count = 2_000_000
    annealing_stops: Count = 4
    hopeless_excess: float = Field(default=2.0, ge=1)
    lower_tier_weight: Share = 0.1
    lower_tiers: int = Field(default=3, ge=0)
    most_lower_tier_gain: Share = 0.5
    action_overhead: float = Field(default=1.0, gt=0, le=1e9)
    kept_gain: Share = 0.3
    checked_per_partition: Count = 4
    slack_weight: float = Field(default=0.1, ge=0)
    slack_parcel: Positive = 0.03
    least_swap_gain: float = Field(default=1e-6, gt=0)
    pairing_share: Positive = 0.1
    retried_share: Share = 0.1
    trivial_share: Share = 0.01
    perturbed_replicas: int = Field(default=50, ge=0)
    perturbation_tries: Count = 10
    perturbation_choices: Count = 32
    explored_placements: int = Field(default=600, ge=0, le=10**6)
    explored_steps: Count = 100
    second_searches: int = Field(default=8, ge=0, le=10**6)
    improvement_rounds: int = Field(default=0, ge=0, le=10**9)
    futile_improvements: Count = 20
    improvement_actions: Count = 6
    shortening_tries: int = Field(default=12, ge=0)
    least_saving: Share = 0.02
    repeat_share: Share = 0.01
    similar_replicas: Count = 2
    most_exchanges: Count = 2_000_000
    destination_parcels: Annotated[tuple[Positive, ...], Field(min_length=1)] = (
        0.8,
        0.6,
        0.45,
        0.35,
        0.25,
        0.18,
        0.12,
        0.08,
        0.05,
        0.03,
        0.015,
        0.005,
    )
    receptive_one_in: Count = 6
    group_destinations: Count = 6
    group_members: int = Field(default=64, ge=2)
    chunk: Count = 1 << 15

    @field_validator("widening")
    @classmethod
    def _widens(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if list(value) != sorted(value):
            raise ValueError("factors in ascending order expected")
        return value

    @field_validator("destination_parcels")
    @classmethod
    def _largest_first(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(value, reverse=True):
            raise ValueError("shares in descending order expected")
        return value

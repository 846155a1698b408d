"""What `solve` shows, in the terminal and on its page: tables made of its records alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdocrl.table import DASH, Table

if TYPE_CHECKING:
    from pdocrl.tabular.result.record import Comparison, ExplainedAction, Frontier, SolvedRecord

UNITS = {"step": "per step", "discounted": "(1−γ)J", "episode": "per episode"}
LEARNED = {
    "costs": "planning for costs as the log has them",
    "bounds": "planning for bounds on costs",
    "inflated": "planning for costs inflated by what few rows can hide",
    "behaviour": "nothing, it is the behaviour policy",
}
FEW = 0.1  # share of steps on few rows from which a reader is told
FLATTERED = (
    "A policy learned from this very log looks better in it than it is, the more so the fewer rows it rests on; "
    "another log of the same kind judges it fairly."
)
FEW_ROWS = "best for this log, on few rows"  # what "optimal" reads where much rests on few rows
STATUS = {
    "optimal": "optimal",
    "approximate": "not optimal yet, see the certificate",
    "shown": "limits shown to be satisfied",
    "not_shown": "limits not shown to be satisfied",
    "not_markov": "no statement: the states hide what matters",
    "infeasible": "infeasible",
    "infeasible_covered": "infeasible among covered policies",
}


def outcome(solved: SolvedRecord) -> Table:
    """Reward and costs of the policy, against the limits; in other units, too, where there are any."""
    spread = solved.intervals
    units = solved.units | (
        {f"per {solved.limit_horizon:g} steps": solved.per_limit_horizon} if solved.per_limit_horizon else {}
    )
    level = f"{100 * spread.level:g} % interval" if spread else "interval"
    earned = [solved.log.value, solved.value, span(spread.value) if spread else DASH, DASH, DASH, DASH]
    rows: list[list[object]] = [["reward", *earned, *(unit["value"] for unit in units.values())]]
    for name, cost in solved.costs.items():
        between = span(spread.costs[name]) if spread and name in spread.costs else DASH
        limit = price = within = DASH
        if name in solved.limits:
            limit = f"{solved.senses[name]} {solved.limits[name]:.4g}"
            if solved.tightened.get(name, solved.limits[name]) != solved.limits[name]:
                limit += f" (aimed at {solved.tightened[name]:.4g})"
            within = "yes" if satisfied(solved, name) else "no"
        if name in solved.multipliers:
            price = f"{solved.multipliers[name]:.4g}"
        logged = solved.log.costs.get(name, float("nan"))
        rows.append([name, logged, cost, between, limit, price, within, *(unit[name] for unit in units.values())])
    heads = [UNITS[solved.unit], "in the log", "policy", level, "limit", "multiplier", "satisfied", *units]
    return Table.of(heads, rows, "Reward and costs of the policy")


def all_of(solved: SolvedRecord) -> list[Table]:
    """Every table of a result: reward and costs, how far to trust it, and further analyses."""
    shown = [outcome(solved), trust(solved)]
    shown += [choices(solved)] if solved.choices else []
    shown += [clusterings(solved)] if solved.clusterings else []
    shown += [frontier(solved.frontier)] if solved.frontier is not None else []
    return shown + ([explained(solved.explain, str(solved.explained))] if solved.explain else [])


def satisfied(solved: SolvedRecord, name: str) -> bool:
    """Whether a limit is satisfied, by the log's own count and but for rounding."""
    room = solved.limits[name] - solved.costs[name]
    return (-room if solved.senses[name] == ">=" else room) >= -1e-7


def in_words(status: str, low_count_share: float) -> str:
    """A status, given the share of steps that rest on few rows."""
    return FEW_ROWS if status == "optimal" and low_count_share > FEW else STATUS.get(status, status)


def trust(solved: SolvedRecord) -> Table:
    """How it was found and how far the log supports it."""
    cover, sure = solved.coverage, solved.confidence
    rows = [["status", in_words(solved.status, solved.low_count_share)]]
    if solved.slater_margin is not None:
        rows.append(["Slater margin", f"{solved.slater_margin:.4g}"])
    for name, bound in {} if sure is None else reversed(sure.bounds.items()):
        assert sure is not None
        said = "unknown, it never occurred" if bound is None else f"{solved.senses[name]} {bound:.4g}, by {sure.by}"
        rows.append([f"{name} at {100 * sure.asked:g} %", said])
    if sure is not None:
        rows.append(["learned by", LEARNED[sure.learned]])
    rows += [
        [f"hidden from the states: {one.signal}", f"explained by {one.by}: {100 * one.share:.2g} % of its surprises"]
        for one in solved.hidden or []
    ]
    rows += [
        ["certificate ξ", f"{solved.certificate:.2g} ({solved.method})"],
        ["discount γ", f"{solved.gamma:g}"],
        ["bound C on w", _bound(solved.C) + (" (chosen, see below)" if solved.choices else "")],
        ["rows a pair needs", f"{solved.min_count}"],
        ["bound B on the multipliers", f"{solved.B:.4g}"],
        ["pairs in the log", f"{cover.pairs} of {cover.pairs_total}"],
        ["states in the log", f"{cover.states} of {cover.states_total}"],
        ["concentrability of the policy", f"{cover.concentrability:.4g}"],
        ["time outside the log", f"{100 * cover.outside:.2g} %"],
    ]
    if solved.intervals is not None and solved.intervals.optimism:  # 0 where nothing was learned again
        rows.append(["optimism bias of the reward", f"{solved.intervals.optimism:.2g}"])
    for index, thin in enumerate(cover.thinnest[:3]):
        label = "least covered states" if index == 0 else ""
        rows.append([label, f"{thin.state}: {100 * thin.time:.2g} % of its time, {100 * thin.data:.2g} % of the log"])
    return Table.of(["what", "found"], rows, "How far to trust it")


def choices(solved: SolvedRecord) -> Table:
    """What other bounds C on w would have given."""
    rows = [
        [
            _bound(c.C),
            c.value,
            *c.costs.values(),
            c.limits or DASH,
            c.concentrability,
            c.score,
            "chosen" if c.C == solved.C else "",
        ]
        for c in solved.choices
    ]
    heads = ["C", "reward", *solved.costs, "limits", "concentrability", "expected, less the price of misses", ""]
    return Table.of(heads, rows, "What other C would have given")


def frontier(line: Frontier) -> Table:
    """One row per limit: the reward it allows, and its price."""
    rows = [
        [
            p.limit,
            p.value,
            span(p.interval) if p.interval else DASH,
            p.cost,
            p.multiplier if p.satisfied else DASH,
            in_words(p.status, p.low_count_share),
            "yes" if p.satisfied else "no",
        ]
        for p in line.points
    ]
    heads = ["limit", "reward", "interval", line.column, "multiplier", "status", "satisfied"]
    return Table.of(heads, rows, f"Along the limit on {line.column}")


def explained(actions: list[ExplainedAction], state: str) -> Table:
    """One row per action: what the log did, what the policy does, what each would bring."""
    rows = [
        [str(a.action), a.rows, f"{100 * a.log:.3g} %", f"{100 * a.policy:.3g} %", a.value, *a.costs.values()]
        for a in actions
    ]
    costs = [f"{name} from here" for name in actions[0].costs]
    return Table.of(["action", "rows", "in the log", "policy", "reward from here", *costs], rows, f"In state {state}")


def clusterings(solved: SolvedRecord) -> Table:
    """The result beside what other clusterings would have given."""
    rows = [["this one", solved.value, *solved.costs.values(), solved.status]]
    others = enumerate(solved.clusterings or [], start=1)
    rows += [[f"learned from half {k}", one.value, *one.costs.values(), one.status] for k, one in others]
    return Table.of(["cells", "reward", *solved.costs, "status"], rows, "What other cells would have given")


def more_rows(solved: SolvedRecord) -> Table:
    """Where more rows would help most."""
    rows = [
        [what, str(need.state), str(need.action), need.rows, f"{100 * need.share:.2g} %"]
        for what, needs in (solved.more_data or {}).items()
        for need in needs
    ]
    heads = ["to be surer of", "state", "action", "rows now", "share of the doubt"]
    return Table.of(heads, rows, "Where more rows would help most")


def compared(judged: Comparison) -> Table:
    """One row per policy, and how far it is above the first."""
    level, names = f"{100 * judged.level:g} %", list(judged.policies[0].estimate)
    rows = [
        [
            p.name,
            *(f"{p.estimate[n]:.4g} ({span((p.low[n], p.high[n]))})" for n in names),
            *(span(p.lead[n]) if number else DASH for n in names),
            f"{100 * p.outside:.2g} %",
        ]
        for number, p in enumerate(judged.policies)
    ]
    above = [f"{name} above the first" for name in names]
    heads = ["policy", *(f"{name} ({level})" for name in names), *above, "time outside the log"]
    return Table.of(heads, rows, "Policies by one log")


def span(interval: tuple[float, float | None]) -> str:
    """Its two ends."""
    low, high = interval
    return f"{low:.4g} … {'unknown' if high is None else f'{high:.4g}'}"


def _bound(C: float | None) -> str:
    return "none" if C is None else f"{C:.4g}"

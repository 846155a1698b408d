"""What a benchmark's numbers say, in sentences: each is derived from the record, none is written beforehand."""

from __future__ import annotations

import numpy as np

from pdocrl.bench.statistics import best_safe, standings
from pdocrl.bench.tables import steps_told
from pdocrl.report.figures import largest_ratio
from pdocrl.report.suite_record import SuiteRecord, Training, limit_name

SATURATED = 0.9  # of the bound of w: beyond, its mean over a batch tells little


def lead(record: SuiteRecord) -> str:
    """The result in a few sentences."""
    if not record.cells:
        return f"{len(record.methods)} methods on {len(record.tasks)} tasks; nothing is scored yet."
    size = (
        f"{_count(len(record.methods), 'method')} on {_count(len(record.tasks), 'task')}: "
        f"{_count(len(record.runs), 'policy', 'policies')}, {len(record.rows):,} episodes in the simulator."
    )
    order = standings(record.cells)
    limits = {s.method: _limits_kept(record, s.method) for s in order}
    kept = max(order, key=lambda s: (limits[s.method][0] / limits[s.method][1], -s.rank))
    often = "{} of {} times (task × limit)".format(*limits[kept.method])
    said = f" {kept.method} keeps its limits most often, {often}"
    if len(order) == 1:
        return f"{size} {kept.method} keeps its limits {often}."
    first = order[0]
    whose = "and has the best average rank" if first == kept else f"{first.method} has the best average rank"
    return f"{size}{said}{' ' if first == kept else '; '}{whose}, {first.rank:.1f} of {len(order)}."


def _limits_kept(record: SuiteRecord, method: str) -> tuple[int, int]:
    """At how many (task, limit) the mean cost is within the limit, and of how many."""
    own = [cell for cell in record.cells if cell.method == method]
    return sum(cell.safe_limits for cell in own), sum(len(cell.limits) for cell in own)


def findings(record: SuiteRecord) -> list[str]:
    """What a careful reader would point out."""
    found = [
        *_other_steps(record),
        *_hidden_by_the_mean(record),
        *_nowhere_safe(record),
        *_uncertain(record),
        *_one_seed(record),
        *_saturated(record),
        *_estimates(record),
        *_other_data(record),
    ]
    unfinished = [t.status for t in record.trainings if t.status.status != "done"]
    if unfinished:
        found.append(
            f"{len(unfinished)} of {len(record.trainings)} trainings have no scores; see “What did not work” below."
        )
    return found


def _other_steps(record: SuiteRecord) -> list[str]:
    if len({row.step for row in record.rows}) < 2:
        return []
    return [f"Methods were not trained equally long. Steps: {steps_told(record.rows)}."]


def _hidden_by_the_mean(record: SuiteRecord) -> list[str]:
    hidden = [
        f"{cell.method} on {cell.task} ({cell.safe_limits} of {len(cell.limits)})"
        for cell in record.cells
        if cell.safe and cell.safe_limits < len(cell.limits)
    ]
    return [f"Safe on average over the limits, but not at each of them: {', '.join(hidden)}."] if hidden else []


def _nowhere_safe(record: SuiteRecord) -> list[str]:
    scored = {cell.task for cell in record.cells}
    tasks = [task for task in record.tasks if task in scored and best_safe(record.cells, task) is None]
    return [f"No method is safe on {' and '.join(tasks)}."] if tasks else []


def _uncertain(record: SuiteRecord) -> list[str]:
    open_ = [
        f"{cell.method} on {cell.task}"
        for cell in record.cells
        if cell.cost_interval[0] <= 1 < cell.cost_interval[1]
    ]  # fmt: skip
    if not open_:
        return []
    return [f"Safe or not is undecided, the 95 % interval of the mean cost holds the limit: {', '.join(open_)}."]


def _one_seed(record: SuiteRecord) -> list[str]:
    if record.rows and len({row.seed for row in record.rows}) == 1:
        return ["One training seed: the intervals say how episodes vary, not how trainings do."]
    return []


def _saturated(record: SuiteRecord) -> list[str]:
    """A density ratio at its bound almost everywhere tells no transition from another."""
    said = []
    for method in record.methods:
        own = [training for training in record.trainings if training.method == method and training.metric("w")]
        stuck = [training.task for training in own if _at_bound(training)]
        if stuck:
            said.append(f"{method} ({'every task' if len(stuck) == len(own) else ', '.join(stuck)})")
    if not said:
        return []
    return [
        f"The density ratio w has saturated, its mean ends at {100 * SATURATED:.0f} % of its upper bound or more: "
        f"{'; '.join(said)}. It weighs almost all transitions alike, and λ hardly answers to the policy's own cost."
    ]


def _at_bound(training: Training) -> bool:
    bound = None if training.plan is None else largest_ratio(training.plan)
    ends = [values[-1] for _, values in training.metric("w").values()]
    return bound is not None and bool(np.mean(ends) >= SATURATED * bound)


def _estimates(record: SuiteRecord) -> list[str]:
    """How far what was said from the data alone can be believed, judged by the roll-outs."""
    played = {(run.task, run.method, run.limit, run.seed): run.cost for run in record.runs}
    judged = []  # (estimate, cost played)
    for training in record.trainings:
        for told in (training.ope or {"runs": []})["runs"]:
            cost = played.get((training.task, training.method, limit_name(told["cost_limit"]), told["seed"]))
            if cost is not None and told["normalized_cost"] is not None:
                judged.append((told, cost))
    if not judged:
        return []
    within = [cost <= 1 for told, cost in judged if told["within_limit"] is True]
    over = [cost > 1 for told, cost in judged if told["within_limit"] is False]
    trusted = [abs(told["normalized_cost"] - cost) for told, cost in judged if told["trusted"]]
    said = f"From the data alone, {len(within)} of {_count(len(judged), 'policy', 'policies')} were shown to be within "
    said += f"the limit, and played {sum(within)} of them are; {len(over)} were shown to be over, and {sum(over)} are."
    if trusted:
        said += (
            f" The {_count(len(trusted), 'trusted estimate')} of cost miss by {np.median(trusted):.2f} of the limit in"
        )
        said += f" the median, by {max(trusted):.2f} at worst."
    return [said]


def _other_data(record: SuiteRecord) -> list[str]:
    tasks = list(dict.fromkeys(row.task for row in record.rows if row.recollected))
    if not tasks:
        return []
    return [
        f"Re-collected data, not the published files: {', '.join(tasks)}. Compare the methods with each other; the "
        "paper's numbers stand beside them for orientation only."
    ]


def _count(number: int, word: str, plural: str = "") -> str:
    return f"{number:,} {word if number == 1 else plural or word + 's'}"

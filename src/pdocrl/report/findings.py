"""What the numbers say, in sentences: each is derived from the record, none is written beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdocrl.report.page_tables import at_one_limit, best_logged, label
from pdocrl.report.pictures import judged
from pdocrl.report.record import Results, Training
from pdocrl.report.statistics import Standing, standings
from pdocrl.report.tables import steps_told
from pdocrl.table import amount

SATURATED = 0.9  # of the bound of w: beyond, its mean over a batch tells little
FAR = 1.0  # limits by which an estimate may miss before the page concludes from it


def lead(record: Results) -> str:
    """The result in a few sentences."""
    if record.alone:
        return _lead_alone(record)
    if not record.runs:
        return f"{len(record.methods)} methods on {len(record.tasks)} tasks; nothing is scored yet."
    scored = {run.method for run in record.runs}
    size = (
        f"{_count(len(scored), 'method')} on {_count(len(record.scored_tasks), 'task')}: "
        f"{_count(len(record.runs), 'policy', 'policies')}, {len(record.rows):,} episodes in the simulator."
    )
    order = standings(record.runs)
    if len(order) == 1:
        return f"{size} {order[0].method} satisfies its limits {_often(order[0])}."
    most = max(s.safe_limits / s.limits for s in order)
    safest = [s for s in order if s.safe_limits / s.limits == most]
    verb, their = ("satisfies", "its") if len(safest) == 1 else ("satisfy", "their")
    often = _often(safest[0]) if len({s.limits for s in safest}) == 1 else f"{100 * most:.0f} % of the time"
    said = f" {_named(safest)} {verb} {their} limits most often, {often}"
    if most == 1 and len(safest) == len(order):
        said = " All satisfy every limit (task × limit)"
    first = [s for s in order if np.isclose(s.rank, order[0].rank)]
    if len(first) == len(order):
        return f"{size}{said}; all have the same average rank."
    share = "has" if len(first) == 1 else "share"
    whose = " and" if first == safest else f"; {_named(first)}"
    return f"{size}{said}{whose} {share} the best average rank, {first[0].rank:.1f} of {len(order)}."


def _named(own: Sequence[Standing]) -> str:
    """ "a", "a and b", "a, b and c": equals are all named."""
    names = [standing.method for standing in own]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _often(standing: Standing) -> str:
    return f"{standing.safe_limits} of {standing.limits} times (task × limit)"


def _lead_alone(record: Results) -> str:
    assert record.trained is not None
    steps = f"Trained for {record.trained.step:,} steps, not yet played in the simulator."
    rows = at_one_limit(record)
    if not rows:
        ope = record.trainings[0].ope
        if ope is None:
            return steps
        within = sum(run.within_limit is True for run in ope.runs)
        return f"{steps} From the data alone, {within} of {len(ope.runs)} policies are shown to be within their limit."
    safe = sum(row.safe for row in rows)
    episodes = sum(row.tail.episodes for row in rows)
    if not rows[0].limit:
        whose = "Played"
    elif len(rows) == 1:
        whose = "The policy satisfies its cost limit" if safe else "The policy violates its cost limit"
    else:
        whose = f"{'All' if safe == len(rows) else f'{safe} of'} {len(rows)} policies satisfy their cost limit"
    rewards = [row.reward for row in rows]
    low, high = min(rewards), max(rewards)
    earned = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    data = "logged data" if record.dataset is None else f"{record.dataset.n_episodes:,} logged episodes"
    played = f"{whose} over {episodes} episodes in the simulator."
    return f"{played} Normalised reward {earned}, learned from {data} alone."


def findings(record: Results) -> list[str]:
    """What a careful reader would point out."""
    alone = (
        [*_unsafe(record), *_conservative(record), *_broke_off(record), *_older_scores(record)] if record.alone else []
    )
    found = [
        *alone,
        *_other_steps(record),
        *_hidden_by_the_mean(record),
        *_nowhere_safe(record),
        *_uncertain(record),
        *_one_training(record),
        *_saturated(record),
        *_estimates(record),
        *_other_data(record),
    ]
    unfinished = [t.status for t in record.trainings if t.status.status != "done"]
    if unfinished and not record.alone:
        found.append(
            f"{len(unfinished)} of {len(record.trainings)} trainings have no scores; see “What did not work” below."
        )
    return found


def _unsafe(record: Results) -> list[str]:
    rows = [row for row in at_one_limit(record) if not row.safe]
    return [f"At {label(record, row)} the mean cost is {row.cost:.2f} times the limit: not safe." for row in rows]


def _conservative(record: Results) -> list[str]:
    """Safe, far below the limit, and with clearly less reward than some logged episode within it."""

    found = []
    for row in at_one_limit(record):
        earned, best = row.episode_reward or 0.0, best_logged(record, row.limit)
        if row.limit and best is not None and row.safe and row.cost < 0.5 and earned < best - 0.1 * abs(best):
            told = f"{amount(earned)} where a logged episode within the limit has {amount(best)}"
            found.append(f"{told} ({label(record, row)})")
    if not found:
        return []
    return [f"Safe but conservative: less than half of the allowed cost is used, and the return is {'; '.join(found)}."]


def _broke_off(record: Results) -> list[str]:
    assert record.trained is not None
    return [
        f"Run {run} stopped at {why}; its policy is the last whole one." for run, why in record.trained.failures.items()
    ]


def _older_scores(record: Results) -> list[str]:
    if record.scores is None or record.trained is None or record.scores.step == record.trained.step:
        return []
    return [
        f"The scores are of step {record.scores.step:,}, the training has reached {record.trained.step:,}: "
        "evaluate again."
    ]


def _other_steps(record: Results) -> list[str]:
    if len({row.step for row in record.rows}) < 2:
        return []
    return [f"Methods were not trained equally long. Steps: {steps_told(record.rows)}."]


def _hidden_by_the_mean(record: Results) -> list[str]:
    hidden = [
        f"{one.method} on {one.task} ({one.safe_limits} of {one.limits})"
        for one in record.summaries
        if one.safe and one.safe_limits < one.limits
    ]
    return [f"Safe on average over the limits, but not at each of them: {', '.join(hidden)}."] if hidden else []


def _nowhere_safe(record: Results) -> list[str]:
    safe = {one.task for one in record.summaries if one.safe}
    tasks = [task for task in record.scored_tasks if task not in safe]
    return [f"No method is safe on {' and '.join(tasks)}."] if tasks and not record.alone else []


def _uncertain(record: Results) -> list[str]:
    open_ = [
        f"{one.method} on {one.task}"
        for one in record.summaries
        if (span := one.cost_interval) is not None and span[0] <= 1 < span[1]
    ]
    if not open_:
        return []
    return [f"Safe or not is undecided, the 95 % interval of the mean cost holds the limit: {', '.join(open_)}."]


def _one_training(record: Results) -> list[str]:
    if record.runs and all(one.intervals_over == "episodes" for one in record.summaries):
        return ["One training seed: the intervals say how episodes vary, not how trainings do."]
    return []


def _saturated(record: Results) -> list[str]:
    """A density ratio at its bound almost everywhere tells no transition from another."""
    said = []
    for method in record.methods:
        own = [training for training in record.trainings if method in training.methods and training.metric("w")]
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
    ends = [values[-1] for _, values in training.metric("w").values()]
    return training.ratio_bound is not None and bool(np.mean(ends) >= SATURATED * training.ratio_bound)


def _estimates(record: Results) -> list[str]:
    """How far what was said from the data alone can be believed, judged by the roll-outs."""
    pairs = [
        (run.normalized_cost, told.normalized_cost, told)
        for task in record.tasks
        for run, told in judged(record, task)
        if told.normalized_cost is not None
    ]
    if not pairs:
        return []
    within = [cost <= 1 for cost, _, told in pairs if told.within_limit is True]
    over = [cost > 1 for cost, _, told in pairs if told.within_limit is False]
    trusted = [abs(value - cost) for cost, value, told in pairs if told.trusted]
    said = f"From the data alone, {len(within)} of {_count(len(pairs), 'policy', 'policies')} were shown to be within "
    said += f"the limit, and played {sum(within)} of them are; {len(over)} were shown to be over, and {sum(over)} are."
    if trusted:
        said += (
            f" The {_count(len(trusted), 'trusted estimate')} of cost miss by {np.median(trusted):.2f} of the limit in"
            f" the median, by {max(trusted):.2f} at worst."
        )
    wrong = len(within) - sum(within) + len(over) - sum(over)
    far = sum(miss > FAR for miss in trusted)
    if wrong or far:
        told = [f"{wrong} of {len(within) + len(over)} verdicts are wrong"] if wrong else []
        told += [f"{far} of {len(trusted)} trusted estimates miss by more than the whole limit"] if far else []
        said += f" The estimates contradict the roll-outs: {' and '.join(told)}. Do not rely on them for this data; "
        said += "believe what was played."
    return [said]


def _other_data(record: Results) -> list[str]:
    tasks = list(dict.fromkeys(row.task for row in record.rows if row.recollected))
    if not tasks or record.alone:
        return []
    return [
        f"Re-collected data, not the published files: {', '.join(tasks)}. Compare the methods with each other; the "
        "paper's numbers are for orientation only."
    ]


def _count(number: int, word: str, plural: str = "") -> str:
    return f"{number:,} {word if number == 1 else plural or word + 's'}"

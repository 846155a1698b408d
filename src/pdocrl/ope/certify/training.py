"""`certify`: whether policies satisfy their limits, from what was logged; `played` does the same from episodes.

a training, a log           ─▶ `ope`, calibrated on held-out groups
a folder of `solve`         ─▶ its bounds
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.episodes import episode_digests
from pdocrl.errors import PdocrlError, by_door
from pdocrl.evaluation.audit import episodes_needed
from pdocrl.files import atomic_path
from pdocrl.ope.any_policy import remembers_spending
from pdocrl.ope.certify.certificate import FILE, PICTURE, PolicyCertificate, Shown, Statement, Verdict, draw, percent
from pdocrl.ope.certify.played import policy_name
from pdocrl.ope.ensemble.judge import Judged
from pdocrl.ope.ensemble.models import EnsembleConfig
from pdocrl.ope.ensemble.of_training import judge_training, training_data
from pdocrl.ope.ensemble.prepare import Prepared
from pdocrl.ope.ensemble.support import never_seen
from pdocrl.records import write_record
from pdocrl.tabular.result.record import SolvedRecord, read_solved
from pdocrl.training.folder import Trained, load_trained

PER = {"step": "per step", "discounted": "discounted", "episode": "of an episode"}


def certify_log(
    trained: Trained | str | os.PathLike[str],
    held_out: str | os.PathLike[str] | Dataset | None = None,
    data: str | os.PathLike[str] | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    config: EnsembleConfig | None = None,
    model_selection: bool = False,
) -> tuple[PolicyCertificate, list[Shown]]:
    """From a log alone: policies play in models that learned a log which had no part in choosing them.

    Without such a log, the training's own judges, and nothing is stated with confidence: what chose a policy is
    flattered by it.
    """
    found = trained if isinstance(trained, Trained) else load_trained(trained)
    if held_out is None:
        dataset, fresh = training_data(found, data), False
        notes = [
            "The log that judges also chose the policies, so nothing is shown. Train on one part of the log (pdocrl "
            "data split) and give the other one (held_out=…, --held-out FILE), or audit some episodes (episodes=59, "
            "--episodes 59)."
        ]
    else:
        dataset = held_out if isinstance(held_out, Dataset) else load(held_out, found.config.task)
        fresh, notes = _is_fresh(found, dataset, data)
    for i in range(len(found.config.runs)):
        if asked := found.config.limits_of(i):
            words = ", ".join(map(str, asked))
            raise PdocrlError(
                f"{found.folder or found.config.data}: run {i} was asked for {words}; from a log only limits "
                "on means are certified for continuous actions. Audit the tail: "
                + by_door("episodes=59.", "--episodes 59.")
            )
    ready = Prepared.of(dataset, seed=seed, config=config, model_selection=model_selection)
    panels = []
    for i, told in enumerate(judge_training(found, ready, seed, confidence)):
        for k, limit in enumerate(found.config.runs[i]["cost_limit"]):
            panels.append(_from_log(found, ready, i, k, limit, told, fresh, confidence))
    if not panels:
        raise PdocrlError(f"{found.folder or found.config.data}: trained without a cost limit; nothing to certify.")
    return PolicyCertificate.of([panel.statement for panel in panels], notes), panels


def _from_log(
    found: Trained,
    ready: Prepared,
    i: int,
    k: int,
    limit: float,
    judged: Judged,
    fresh: bool,
    confidence: float,
) -> Shown:
    told = judged.told
    costs, name = told.simulated[:, 1 + k], found.config.cost_names[k]
    mean, low, high = float(told.value[1 + k]), float(told.below[k]), float(told.above[k])
    unseen = never_seen(ready.dataset)[k]
    unknown = judged.why + ([unseen] if unseen else [])
    side: Verdict = (
        "cannot be shown" if unknown else "within" if high <= limit else "over" if low > limit else "cannot be shown"
    )
    largest = float(found.config.horizon * ready.dataset.cost[:, k].max()) or None
    needed = None if largest is None else episodes_needed(np.clip(costs, 0, largest), limit, largest, confidence)
    if largest is None:
        more = "an audit shows it, if the largest cost an episode can have is stated (largest_cost=…, --largest-cost)"
    elif needed is None:
        more = "an audit would probably not show it"
    elif needed:
        more = f"an audit of about {needed} episodes would probably show it"
    else:
        more = f"no episode costs more than {largest:g} unless steps cost more than any that was logged"
    bounds = f"an episode costs {mean:.3g} on average, between {low:.3g} and {high:.3g}"
    words = {
        "within": f"Satisfies its limit: we are {percent(confidence)} sure that {bounds}",
        "over": f"Violates its limit: we are {percent(confidence)} sure that {bounds}",
        "cannot be shown": f"Cannot be shown from this log ({unknown[0] if unknown else bounds}); {more}",
    }
    sentence = words[side] + "."
    if not fresh and side != "cannot be shown":
        guess = "satisfies" if side == "within" else "violates"
        sentence = f"Probably {guess} its limit ({bounds}), but the log that says so also chose the policy; {more}."
    calibration = ready.behaviours.calibration if judged.carried else ready.calibration
    cover = calibration.coverage(confidence)[1 + k]
    statement = Statement(
        policy=policy_name(found, i),
        cost=name,
        cost_limit=limit,
        verdict=side if fresh else "cannot be shown",
        confidence=confidence if fresh else None,
        basis="held-out log" if fresh else "training log",
        sentence=sentence,
        assumption=(
            "The policy is to the logged behaviours what they are to each other. "
            f"{'Estimates' if judged.carried else 'Models'} were calibrated on {len(calibration.truth)} groups of "
            "episodes they had not seen; intervals made from the other groups held the true cost of "
            f"{percent(round(float(cover), 3))} of them."
        ),
        mean_cost=mean,
        mean_cost_lower=low,
        mean_cost_upper=high,
        share_over=float(told.share_over(found.config.runs[i]["cost_limit"])[k]),
        episodes_needed=needed,
        largest_cost=largest,
    )
    return Shown(statement, simulated=costs)


def _is_fresh(found: Trained, dataset: Dataset, data: Any) -> tuple[bool, list[str]]:
    """Whether a log had no part in choosing the policies; looked up where the training's data is still there."""
    if dataset.digest == found.config.data_digest:
        return False, [f"{dataset.name} is the log the policies were trained on, so nothing is shown."]
    try:
        before = set(episode_digests(training_data(found, data)))
    except PdocrlError:
        return True, ["The training's data was not found, so that no episode is in both logs could not be checked."]
    shared = len(before & set(episode_digests(dataset)))
    if shared:
        return False, [f"{shared} episodes of {dataset.name} were also trained on, so nothing is shown."]
    return True, []


def certify_solved(folder: str | os.PathLike[str]) -> tuple[PolicyCertificate, list[Shown]]:
    """What a folder of `pdocrl solve` shows of its limits."""
    if remembers_spending(Path(folder)):
        raise PdocrlError(
            f"{folder}: solved with a limit on a tail, of which its own log shows nothing; let other episodes judge: "
            f"" + by_door("certify(folder, log, limits).", f"pdocrl certify {folder} --log FILE --limits …")
        )
    found = read_solved(folder)
    panels = [
        Shown(_from_solve(found, name, Path(folder).name), unit=PER[found.unit], at_least=found.senses[name] == ">=")
        for name in found.limits
    ]
    if not panels:
        raise PdocrlError(f"{folder}: solved without a limit; nothing to certify.")
    return PolicyCertificate.of([panel.statement for panel in panels]), panels


def _from_solve(found: SolvedRecord, name: str, policy: str) -> Statement:
    limit, value, sense, shown = found.limits[name], found.costs[name], found.senses[name], found.confidence
    sign, word = (1, "at most") if sense == "<=" else (-1, "at least")
    if shown is None:
        told = (
            f"Cannot be shown: {name} is estimated at {value:.4g} (limit {limit:g}) by the log that chose the policy; "
        )
        low, high = (None, None) if found.intervals is None else found.intervals.costs[name]
        verdict, sure = "cannot be shown", None
        told += "solve again with a confidence (confidence=0.95, --confidence 0.95)."
    else:
        bound, sure = shown.bounds[name], shown.asked
        tested = shown.by.startswith("held-out")  # 0.2 judged other policies than the one it returned
        shows = found.status == "shown" and shown.reached and tested
        kept = shows and bound is not None and sign * (limit - bound) >= 0
        verdict = "within" if kept else "cannot be shown"
        said = (
            f"{word} {bound:.4g}" if bound is not None else "unknown, since some limited cost never occurred in the log"
        )
        told = f"{'Satisfies its limit' if kept else 'Cannot be shown'}: at {percent(sure)}, {name} is {said} "
        told += f"(limit {limit:g}, estimate {value:.4g})."
        if found.status == "not_markov":
            told += " The states hide what matters, so the bound does not hold."
        elif not tested and shown.reached:
            told += " It was solved by version 0.2, which tested other policies than this one; solve again."
        low, high = (None, bound) if sign > 0 else (bound, None)
    return Statement(
        policy=policy,
        cost=name,
        cost_limit=limit,
        verdict=verdict,  # type: ignore[arg-type]
        confidence=sure,
        basis="solved log",
        sentence=told,
        assumption=_assumed(found),
        mean_cost=value,
        mean_cost_lower=low,
        mean_cost_upper=high,
    )


def _assumed(found: SolvedRecord) -> str:
    on = "" if found.confidence is None else f"The policy was tested on {found.confidence.by}. "
    return f"{on}{'; '.join(found.assumptions or ['States are as the log names them'])}. Units: {found.unit}."


def keep(certificate: PolicyCertificate, panels: list[Shown], folder: Path) -> list[Path]:
    """Write certificate.json and certificate.png into a folder."""
    with atomic_path(folder / PICTURE) as path:
        draw(panels, path)
    write_record(folder / FILE, certificate)
    return [folder / FILE, folder / PICTURE]

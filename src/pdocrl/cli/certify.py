"""`pdocrl certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from pdocrl import console
from pdocrl.cli.words import limit, log_columns
from pdocrl.console import print_json, print_table
from pdocrl.errors import PdocrlError

FILE, PICTURE = "certificate.json", "certificate.png"
Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN …")]
Numbers = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NUMBER …")]


def certify(
    policies: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[POLICY …]")] = (),
    /,
    *,
    log: str | None = None,
    state_columns: Names = (),
    action: str = "action",
    reward: str = "reward",
    costs: Names = (),
    episode: str = "episode",
    step: str | None = None,
    terminal: str | None = None,
    decider: str | None = None,
    propensity: str | None = None,
    held_out: str | None = None,
    data: str | None = None,
    model_selection: bool = False,
    episodes: int | None = None,
    fixed: bool = False,
    task: str | None = None,
    audit: Path | None = None,
    run: int | None = None,
    cost_limit: Numbers = (),
    limits: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LIMIT …", aliases=["--limit"])] = (),
    plan: bool = False,
    expected: float | None = None,
    confidence: float = 0.95,
    largest_cost: Numbers = (),
    seed: int = 0,
    workers: int | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Say whether policies satisfy their cost limits, how sure that is, and what it rests on.

    Example:
        pdocrl certify runs/half --held-out other_half.hdf5
        pdocrl certify runs/ballrun --episodes 59
        pdocrl certify policy/
        pdocrl certify runs/ballrun --audit episodes.parquet
        pdocrl certify --audit episodes.parquet --cost-limit 10
        pdocrl certify --audit episodes.csv --limits 'P(cost>20)<=0.05' 'CVaR90(cost)<=40' --largest-cost 250
        pdocrl certify rules:mine --log visits.csv --limits 'cost<=4' 'P(cost>20)<=0.05' --largest-cost 60
        pdocrl certify --plan --limits 'P(cost>20)<=0.05' --expected 0.01
        pdocrl certify --audit episodes.csv --cost-limit 10,5 --largest-cost 200,200 --out certificate/ --json

    From a log alone, policies play in models learned from it; that log must not be the one they were trained on, or
    nothing is shown. With --episodes, a simulator is asked, and no longer than it takes. A file of audited episodes
    (Parquet or CSV) has a row an episode and a column `cost`, or one per constraint, `cost_*`; beside a training also a
    column `run`, which says whose policy played: 0, 1, … The verdict is on the mean cost of an episode: within, over,
    or cannot be shown.

    Args:
        policies: what `pdocrl train` or `pdocrl solve` wrote; with --log any policy as in `pdocrl ope`, or several, of
            which one half of the log chooses and the other judges; none for a file of episodes.
        log: a log of discrete decisions that judges, with --limits.
        state_columns: of the log: what policies may look at, in order; default: all without another role.
        action: its column of actions.
        reward: its column of rewards.
        costs: its cost columns; default: `cost`, all that begin with `cost_`, and those that limits name.
        episode: its column that names the episode; `none` where each row is an episode.
        step: its column of time within the episode.
        terminal: its column that is true where the process ended.
        decider: its column that names who decided.
        propensity: its column with the probability of the logged action, or `none` to have it estimated; default:
            `propensity`, where there is one in (0, 1].
        held_out: a log that had no part in choosing the policies; see `pdocrl data split`.
        data: the training data, when it is no longer where it was.
        model_selection: from a held-out log: learn it in two ways, which takes twice as long, and keep what predicts
            held-out episodes best; often shows more.
        episodes: play at most so many episodes of each policy in the simulator.
        fixed: play all of them; the share over the limit then has its exact bound.
        task: the task to play, when the training did not name one.
        audit: a file of real or simulated episodes, of the training's policies where one is given.
        run: whose policy played all of them, where the file does not say.
        cost_limit: what an episode may cost on average; with several costs, one number for each.
        limits: with a log or an audit file: 'cost<=4', 'P(cost>20)<=0.05' or 'CVaR90(cost)<=40' of episodes.
        plan: say how many episodes show each of --limits with probability 0.9; plays and writes nothing.
        expected: of --plan: what the limited measure is expected to be; default: half of the limit.
        confidence: of every statement.
        largest_cost: what an episode can cost at most; bounds on a mean rest on it, and without it none is stated.
            Default: with a training, its horizon times the costliest step of its data.
        seed: of the starts, the models and the simulator.
        workers: processes that play; default: one per core.
        out: a folder for certificate.json and certificate.png; default: that of the policy.
        json: print one JSON object.
    """
    from pdocrl.ope import certify as certificates
    from pdocrl.records import as_plain

    if not 0 < confidence < 1:
        raise PdocrlError(f"--confidence is {confidence:g}; give a number between 0 and 1, such as 0.95.")
    largest = _numbers(largest_cost)
    if plan:
        _plan(limits, expected, confidence, largest[0] if largest else None, json)
        return
    if log is None and len(policies) > 1:
        raise PdocrlError(f"{', '.join(policies)}: several policies are certified by a log of decisions: --log FILE.")
    several = list(policies) if len(policies) != 1 else policies[0]
    roles = {"step": step, "terminal": terminal, "decider": decider, "propensity": propensity}
    columns = log_columns(episode, costs, state_columns, action=action, reward=reward, **roles)
    certificate = certificates.certify(
        several or None,
        log,
        limits,
        held_out=held_out,
        data=data,
        audit=audit,
        run=run,
        episodes=episodes,
        fixed=fixed,
        task=task,
        cost_limit=_numbers(cost_limit),
        confidence=confidence,
        largest_cost=largest or None,
        model_selection=model_selection,
        seed=seed,
        workers=workers,
        out=out,
        **(columns if log is not None else {}),
    )
    folder = out if out is not None else Path(policies[0]) if log is None and policies else None
    if json:
        print_json(as_plain(certificate))
    else:
        print_table(
            ["policy", "cost", "limit", "verdict", "confidence", "mean cost (low, high)", "share over ≤", "basis"],
            [
                [
                    s.policy,
                    s.cost,
                    s.cost_limit if s.limit is None else s.limit.limit,
                    s.verdict,
                    "–" if s.confidence is None else s.confidence,
                    _bounds(s.mean_cost, s.mean_cost_lower, s.mean_cost_upper),
                    "–" if s.share_over_upper is None else f"{100 * s.share_over_upper:.3g} %",
                    s.basis,
                ]
                for s in certificate.statements
            ],
            title="certificate",
        )
        for s in certificate.statements:
            print(f"{s.policy}, {s.cost}: {s.sentence}")
        for assumption in dict.fromkeys(s.assumption for s in certificate.statements):
            print(f"This rests on: {assumption}")
        for note in certificate.notes:
            print(f"Note: {note}")
    if folder is not None:
        console.log(f"wrote {folder / FILE}")
        if (folder / PICTURE).is_file():
            console.log(f"wrote {folder / PICTURE}")


def _plan(
    limits: tuple[str, ...], expected: float | None, confidence: float, cost_max: float | None, json: bool
) -> None:
    from pdocrl.evaluation.tails import plan_audit
    from pdocrl.limits import as_limits
    from pdocrl.records import as_plain

    if not limits:
        raise PdocrlError("--plan: nothing to plan for; give --limits 'P(cost>20)<=0.05'.")
    plans = [plan_audit(one, expected, confidence=confidence, cost_max=cost_max) for one in as_limits(limits)]
    if json:
        print_json({"plans": [as_plain(one) for one in plans]})
        return
    print_table(
        ["limit", "expected", "episodes", "of which over", "confidence", "power"],
        [[one.limit, one.expected, one.episodes, one.allowed, one.confidence, one.power] for one in plans],
        title="audit plan",
    )
    for one in plans:
        print(one.sentence)


def _numbers(words: tuple[str, ...]) -> list[float]:
    return [value for word in words for value in limit(word)]


def _bounds(mean: float | None, low: float | None, high: float | None) -> str:
    shown = ["–" if x is None else f"{x:.3g}" for x in (mean, low, high)]
    return f"{shown[0]} ({shown[1]}, {shown[2]})"

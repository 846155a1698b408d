"""`pdocrl certify`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import OmitArgPrefixes

from pdocrl import console
from pdocrl.cli.log_columns import LogColumns, Names
from pdocrl.cli.words import limit
from pdocrl.console import print_json, print_table
from pdocrl.errors import PdocrlError

FILE, PICTURE = "certificate.json", "certificate.png"
Numbers = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NUMBER …")]


@dataclasses.dataclass(frozen=True)
class Details:
    """How policies are played and judged."""

    data: str | None = None
    """The training data, when it is no longer where it was."""
    model_selection: bool = False
    """From a held-out log: learn it in two ways, which takes twice as long, and keep what predicts held-out episodes
    best; often shows more."""
    fixed: bool = False
    """Play all of --episodes; the share over the limit then has its exact bound."""
    task: str | None = None
    """The task to play, when the training did not name one."""
    run: int | None = None
    """Whose policy played all audited episodes, where the file does not say."""
    stream: bool = False
    """Of --log: read it part by part; of itself beyond 3,000,000 rows."""
    seed: int = 0
    """Of the starts, the models and the simulator."""
    workers: int | None = None
    """Processes that play; default: one per core."""
    expected: float | None = None
    """Of --plan: what the limited measure is expected to be; default: half of the limit."""


_COLUMNS, _DETAILS = LogColumns(), Details()


def certify(
    policies: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[POLICY …]")] = (),
    /,
    *,
    log: str | None = None,
    state_columns: Names = (),
    held_out: str | None = None,
    episodes: int | None = None,
    audit: Path | None = None,
    cost_limit: Numbers = (),
    limits: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LIMIT …", aliases=["--limit"])] = (),
    plan: bool = False,
    confidence: float = 0.95,
    largest_cost: Numbers = (),
    out: Path | None = None,
    json: bool = False,
    columns: Annotated[LogColumns, OmitArgPrefixes] = _COLUMNS,
    details: Annotated[Details, OmitArgPrefixes] = _DETAILS,
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
        held_out: a log that had no part in choosing the policies; see `pdocrl data split`.
        episodes: play at most so many episodes of each policy in the simulator.
        audit: a file of real or simulated episodes, of the training's policies where one is given.
        cost_limit: what an episode may cost on average; with several costs, one number for each.
        limits: with a log or an audit file: 'cost<=4', 'P(cost>20)<=0.05' or 'CVaR90(cost)<=40' of episodes.
        plan: say how many episodes show each of --limits with probability 0.9; plays and writes nothing.
        confidence: of every statement.
        largest_cost: what an episode can cost at most; bounds on a mean rest on it, and without it none is stated.
            Default: with a training, its horizon times the costliest step of its data.
        out: a folder for certificate.json and certificate.png; default: that of the policy.
        json: print one JSON object.
    """
    from pdocrl.ope import certify as certificates
    from pdocrl.records import as_plain

    if not 0 < confidence < 1:
        raise PdocrlError(f"--confidence is {confidence:g}; give a number between 0 and 1, such as 0.95.")
    largest = _numbers(largest_cost)
    if plan:
        _plan(limits, details.expected, confidence, largest[0] if largest else None, json)
        return
    if log is None and len(policies) > 1:
        raise PdocrlError(f"{', '.join(policies)}: several policies are certified by a log of decisions: --log FILE.")
    several = list(policies) if len(policies) != 1 else policies[0]
    own = {name: value for name, value in dataclasses.asdict(details).items() if name != "expected"}
    certificate = certificates.certify(
        several or None,
        log,
        limits,
        held_out=held_out,
        audit=audit,
        episodes=episodes,
        cost_limit=_numbers(cost_limit),
        confidence=confidence,
        largest_cost=largest or None,
        out=out,
        **own | {"stream": details.stream or None},
        **(columns.read_as(state_columns) if log is not None else {}),
    )
    folder = out if out is not None else Path(policies[0]) if log is None and policies else None
    if json:
        print_json(as_plain(certificate))
    else:
        certificate.table().show()
        print("\n".join(certificate.told()))
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

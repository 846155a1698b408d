"""`evaluate`: trained policies in the simulator, every episode counted, scored under a named protocol.

folder ─▶ policies, each at the limit it is asked for ─▶ episodes ─▶ Scores, which scores.json holds
"""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pdocrl.console import log, progress
from pdocrl.data.tasks import Task, find_task
from pdocrl.errors import PdocrlError, by_door
from pdocrl.evaluation.ask import Asked, CostLimit, ask, training_numbers
from pdocrl.evaluation.normalise import normalised_cost, normalised_reward
from pdocrl.evaluation.protocols import protocol_of
from pdocrl.evaluation.score import (
    EpisodeScore,
    PredictedLimit,
    RunScore,
    Summary,
    score_run,
    summarise,
    variant_of,
)
from pdocrl.evaluation.tails import LimitScore, score_limits
from pdocrl.limits import Limit, Limits, amounts, as_limits, in_words
from pdocrl.policies.dial import prediction, serves_tails
from pdocrl.policies.policy import Policy
from pdocrl.provenance import PLAYING, Provenance, provenance
from pdocrl.records import Part, Record, read_record, write_record
from pdocrl.table import DASH, Table
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import Trained, load_trained

if TYPE_CHECKING:
    from pdocrl.envs.episode import Episodes
    from pdocrl.envs.rollout import EnvLike

FILE = "scores.json"
OWN_FILE = "scores_own.json"  # of an environment other than the task's
LONGEST = 1_000_000  # steps of an episode whose environment alone says when it ends


class DataName(Part, frozen=True, kw_only=True):
    """The data a training learned from."""

    name: str
    digest: str


class Scores(Record, frozen=True, kw_only=True):
    """Every run of a training as it was played, and what was made of it."""

    FORMAT: ClassVar[int] = 3  # 2 told neither task nor variant of a run; 1 had bare numbers for one constraint
    task: str
    protocol: str  # the protocol whose limits, seeds and episodes these are, else "custom"
    data: DataName
    step: int
    runs: list[RunScore]
    summary: list[Summary]  # of each variant of settings: at each limit, and the mean over them
    played: Provenance | None = None  # what played them; None in files of 0.2
    environment: str = ""  # the id that was played, or the function that made it; "": a file of 0.2, the task's own
    own_environment: bool = False  # whether it was given to `evaluate` in place of the task's simulator

    @classmethod
    def upgrade(cls, fields: dict[str, Any], number: int) -> dict[str, Any] | None:
        """Of format 2, whose summary lacks what is made again by `read_scores`."""
        if number != 2:
            return None
        runs = [{**run, "task": fields["task"], "variant": variant_of(run["settings"])} for run in fields["runs"]]
        return {**fields, "runs": runs, "summary": []}

    def __repr__(self) -> str:
        episodes = sum(len(run.episodes) for run in self.runs)
        safe = sum(run.safe for run in self.runs)
        reward = sum(run.normalized_reward for run in self.runs) / max(len(self.runs), 1)
        where = f"own environment, scored as {self.task}" if self.own_environment else self.task
        return (
            f"Scores({where}, {self.protocol}: {len(self.runs)} runs, {episodes} episodes; {safe} within limits, "
            f"mean normalised reward {reward:.3f})"
        )

    def table(self) -> Table:
        """A row per run: what it was asked for, and what its episodes came to."""
        rows = [
            [
                one.asked,
                one.seed,
                one.reward,
                ", ".join(f"{cost:.4g}" for cost in one.cost),
                one.normalized_reward,
                one.normalized_cost,
                "yes" if one.safe else "NO",
            ]
            for one in self.runs
        ]
        heads = ["cost limit", "seed", "reward", "cost", "normalised reward", "normalised cost", "safe"]
        each = f"{len(self.runs[0].episodes)} episodes each"
        return Table.of(heads, rows, f"{self.task}, protocol {self.protocol}, data {self.data.name}, {each}")

    def limits_table(self) -> Table:
        """A row per run and limit that its episodes were held against: estimate, bounds and verdict."""
        rows = [
            [
                one.asked,
                one.seed,
                s.limit,
                s.value,
                DASH if s.lower is None else s.lower,
                DASH if s.upper is None else s.upper,
                "yes" if s.satisfied else "NO",
                s.verdict,
            ]
            for one in self.runs
            for s in one.limits
        ]
        heads = ["cost limit", "seed", "limit", "is", "at least", "at most", "satisfied", "shown at 95 %"]
        return Table.of(heads, rows, f"limits, {len(self.runs[0].episodes)} episodes each")

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.table().notebook(one.sentence() for one in self.summary)}"


def evaluate(
    trained: Trained | Policy | str | os.PathLike[str],
    episodes: int = 20,
    *,
    cost_limit: CostLimit | Sequence[CostLimit] | None = None,
    limits: Limits = (),
    from_every_start: bool | None = None,
    cost_max: float | None = None,
    task: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    env: EnvLike | None = None,
) -> Scores:
    """Play `episodes` episodes of each policy (its mode, at the last checkpoint) and score them.

    Args:
        trained: a training, its folder, or a policy, which needs `env`, and `cost_limit` where it knows none.
        episodes: of each policy. Their seeds depend on `seed` alone, so all policies meet the same starts.
        cost_limit: a limit, or several, such as [20, "P(cost>20)<=0.1"]. Policies that serve every limit are asked for
            these instead of the ones they were trained at; of others those play that were trained for these.
        limits: such as ["P(cost>20)<=0.05", "CVaR90(cost)<=40"], scored on every run's episodes: estimate, bounds at
            95 % and verdict in `RunScore.limits`. Without `cost_limit`, policies that serve limits on tails are asked
            to satisfy all of them together.
        from_every_start: whether a policy that serves limits on tails satisfies its limits from every first state,
            and not on average over them.
        cost_max: the largest cost an episode can have; upper bounds on a mean and a CVaR rest on it.
        task: gives simulator and reference scores, where the training names none.
        seed: decides the starts.
        workers: processes; default: one per core. 0 plays in this one.
        env: an id, or a function that makes the environment, played in place of the task's simulator and no longer
            than the horizon. The record names it, and scores are written as scores_own.json, not as scores.json.
    """
    from pdocrl.envs.registry import capped
    from pdocrl.envs.rollout import Rollouts

    cost_limit = [cost_limit] if isinstance(cost_limit, int | float | str | Limit) else cost_limit
    if isinstance(trained, str | os.PathLike):
        found = load_trained(trained)
    else:
        found = trained if isinstance(trained, Trained) else _alone(trained, env, cost_limit)
    config = found.config
    name = task or config.task
    spec = find_task(name) if name else None
    if spec is None and env is not None:
        spec = Task(env if isinstance(env, str) else getattr(env, "__name__", "own"), config.horizon)
    if spec is None or (spec.env_id is None and env is None):
        raise PdocrlError(
            f"{found.folder or config.data}: no simulator known for this data; name the task "
            f"({by_door('task=…, or env=…', '--task')})."
        )
    if episodes < 1:
        raise PdocrlError(f"episodes is {episodes}, must be at least 1.")
    held = as_limits(limits)
    for limit in held:
        limit.index(config.cost_names)  # refused before anything is played
    if held and cost_limit is None and all(map(serves_tails, found.policies)):
        cost_limit = [list(held)]
    asked = ask(found, cost_limit, from_every_start)
    for one in asked:
        said = prediction(one.policy)
        if said is not None and not said.within:
            means = [f"{x:.3g} (bound {most:.3g})" for x, most in zip(said.cost, said.bound, strict=True)]
            tails = [f"{x.limit} at {x.value:.3g} (bound {x.bound:.3g})" for x in said.tails]
            costs = ", ".join([*means, *tails])
            log(
                f"run {one.run}: cost limit {one.words()} is not predicted to be satisfied; the setting that exceeds "
                f"it least acts: predicted cost {costs}."
            )
    world = spec.name if env is None else capped(env, spec.horizon)
    with progress() as bar, Rollouts(world, workers, tuple(config.cost_names)) as pool:
        row = bar.add_task(f"{spec.name}: episodes", total=len(asked) * episodes)
        played = pool.run([one.policy for one in asked], episodes, seed, progress=lambda: bar.advance(row))
    return score_played(found, spec, played, asked, held, cost_max, _environment(env))


def _environment(env: EnvLike | None) -> str:
    """How the record names an environment that was given: its id, or the function that makes it; "" where none was."""
    if env is None or isinstance(env, str):
        return env or ""
    inner = getattr(env, "func", env)  # of a partial
    return f"{getattr(inner, '__module__', '?')}:{getattr(inner, '__qualname__', type(inner).__name__)}"


def _alone(policy: Policy, env: EnvLike | None, cost_limit: Any) -> Trained:
    """A policy as a training of one run, of which no more is known."""
    own: Sequence[float] = getattr(policy, "cost_limit", ())
    if env is None or (cost_limit is None and not own):
        both = "" if own else " and held against cost_limit=…, which it does not tell; give both"
        raise PdocrlError(f"a policy alone is played with env=…{both}.")
    if cost_limit is not None and len(cost_limit) != 1:
        raise PdocrlError("a policy alone is held against one cost limit; give one, or [[a, b]] with two constraints.")
    one = own if cost_limit is None else cost_limit[0]
    if in_words(one):
        one = amounts(as_limits(one), ["cost"], LONGEST)
    limit = [float(x) for x in (one if isinstance(one, Sequence) else (one,))]
    config = TrainingConfig(
        data="",
        data_digest="",
        task=None,
        horizon=LONGEST,
        cost_names=["cost"] if len(limit) == 1 else [f"cost_{k}" for k in range(len(limit))],
        agent="policy",
        training=[0],
        settings={},
        runs=[{"cost_limit": limit, "seed": 0}],
        steps=0,
        log_every=1,
        checkpoint_every=1,
        evaluate_every=0,
        evaluate_episodes=1,
        versions={},
    )
    return Trained(config, 0, [policy], {}, [])


def score_played(
    found: Trained,
    spec: Task,
    played: Episodes,
    asked: Sequence[Asked] | None = None,
    limits: Sequence[Limit] = (),
    cost_max: float | None = None,
    own_environment: str = "",
) -> Scores:
    """Score the episodes of every policy of a training; with a folder, write scores.json there.

    Those of an environment other than the task's go to scores_own.json, which no page takes for the simulator's.
    """
    config, numbers = found.config, training_numbers(found)
    asked = ask(found) if asked is None else asked
    runs = []
    for i, one in enumerate(asked):
        own = played.of_policy(i)
        every = list(dict.fromkeys((*one.limits, *limits)))
        held = score_limits(every, config.cost_names, own.cost, own.max_step_cost, cost_max=cost_max)
        runs.append(_run(found, spec, own, one, numbers[one.run], held))
    result = Scores(
        task=spec.name,
        protocol="custom"
        if own_environment
        else protocol_of([r.cost_limit for r in runs], [r.seed for r in runs], len(played) // len(runs)),
        data=DataName(name=Path(config.data).name, digest=config.data_digest),
        step=found.step,
        runs=runs,
        summary=summarise(runs),
        played=provenance(PLAYING),
        environment=own_environment or spec.env_id or "",
        own_environment=bool(own_environment),
    )
    if found.folder is not None:
        write_record(found.folder / (OWN_FILE if own_environment else FILE), result)
    return result


def read_scores(folder: str | os.PathLike[str]) -> Scores:
    """What `evaluate` wrote into a training folder."""
    scores = read_record(Path(folder) / FILE, Scores, f"Make it again: pdocrl evaluate {folder}")
    if not scores.runs or not all(run.episodes for run in scores.runs):
        raise PdocrlError(f"{Path(folder) / FILE}: holds no episodes. Make it again: pdocrl evaluate {folder}")
    return scores if scores.summary else msgspec.structs.replace(scores, summary=summarise(scores.runs))


def _run(found: Trained, spec: Task, own: Episodes, asked: Asked, training: int, limits: list[LimitScore]) -> RunScore:
    run = found.config.runs[asked.run]
    said, words = prediction(asked.policy), [str(limit) for limit in asked.limits]
    settings = {name: value for name, value in run.items() if name not in {"cost_limit", "seed"}}
    settings |= {"limits": words} if words or "limits" in settings else {}
    return score_run(
        _score_episodes(spec, own, asked.limit),
        asked.limit,
        limits,
        task=spec.name,
        agent=found.config.agent,
        variant=variant_of(settings),
        run=asked.run,
        training=training,
        trained_limit=list(run["cost_limit"]),
        seed=run["seed"],
        settings=settings,
        failure=found.failures.get(asked.run),
        predicted_cost=None if said is None else said.cost.tolist(),
        predicted_within=None if said is None else said.within,
        predicted_tails=[] if said is None else [PredictedLimit(**tail._asdict()) for tail in said.tails],
    )


def _score_episodes(task: Task, played: Episodes, limit: tuple[float, ...]) -> list[EpisodeScore]:
    rewards = normalised_reward(task, played.reward).tolist()
    costs = normalised_cost(played.cost, limit).max(axis=1, initial=0.0).tolist()
    return [
        EpisodeScore(
            seed=record["seed"],
            reward=record["reward"],
            cost=list(record["cost"]),
            length=record["length"],
            normalized_reward=reward,
            normalized_cost=cost,
        )
        for record, reward, cost in zip(played.records(), rewards, costs, strict=True)
    ]

"""Which policies of a training play, and the limits each is asked for.

training, limits as people write them ─▶ `ask` ─▶ Asked: a policy told its limits, and the amounts that scores use
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit, amounts, as_limits, in_words
from pdocrl.policies.dial import serves_tails
from pdocrl.policies.policy import Policy
from pdocrl.training.folder import Trained

CostLimit = float | str | Limit | Sequence[float] | Sequence[str | Limit]


@runtime_checkable
class CostConditioned(Protocol):
    """A policy that can be asked for any limit after training."""

    def with_limit(self, cost_limit: Any, **wishes: Any) -> Policy: ...


class Asked(NamedTuple):
    """A policy with the limit it is asked for."""

    run: int
    limit: tuple[float, ...]  # [K] of limits in words the amounts of cost in them
    policy: Policy
    limits: tuple[Limit, ...] = ()  # in words, where one of them is on a tail

    def words(self) -> str:
        """The limits as people write them."""
        return ", ".join(str(limit) for limit in self.limits) or ", ".join(f"{x:.3g}" for x in self.limit)


def ask(
    found: Trained,
    cost_limit: CostLimit | Sequence[CostLimit] | None = None,
    from_every_start: bool | None = None,
) -> list[Asked]:
    """Every policy at its own limit; or, of every training, one policy at each of the given limits.

    Of an agent whose policies serve one limit each, those that were trained for the given ones.
    """
    pairs = zip(found.config.runs, found.policies, strict=True)
    own = [
        Asked(i, tuple(run["cost_limit"]), policy, found.config.limits_of(i)) for i, (run, policy) in enumerate(pairs)
    ]
    place = found.folder or found.config.data
    if from_every_start is not None and not all(map(serves_tails, found.policies)):
        raise PdocrlError(
            f"{place}: policies of `{found.config.agent}` satisfy a limit on average over the first states; `dial` "
            "also serves limits from every first state (from_every_start)."
        )
    if cost_limit is None:
        return own if from_every_start is None else [_told(one, from_every_start) for one in own]
    given = [cost_limit] if isinstance(cost_limit, int | float | str | Limit) else list(cost_limit)
    wishes = [_wish(one, found) for one in given]
    serving = [policy for policy in found.policies if isinstance(policy, CostConditioned)]
    if len(serving) < len(found.policies):
        known = [(one.limit, one.limits) for one in own]
        if set(wishes) <= set(known):
            return [one for one in own if (one.limit, one.limits) in wishes]
        shown = " ".join(",".join(f"{x:g}" for x in limit) for limit, _ in dict.fromkeys(known))
        tail = " (of these only `dial` serves limits on tails)" if any(limits for _, limits in wishes) else ""
        raise PdocrlError(
            f"{place}: a policy of `{found.config.agent}` serves one limit, those here {shown}. Train with the "
            f"cost limit that it shall be played at; `dial`, `caps_iql`, `caps_sac` and `bcrl` serve every limit{tail}."
        )
    tails = [limits for _, limits in wishes if limits]
    if tails and not all(map(serves_tails, found.policies)):
        raise PdocrlError(
            f"{place}: policies of `{found.config.agent}` serve limits on the mean cost alone, not {tails[0][0]}; "
            "`dial` serves limits on tails (files of before version 0.3 do not: train it again)."
        )
    numbers = training_numbers(found)
    firsts = {number: i for i, number in reversed(list(enumerate(numbers)))}  # one policy of each training
    every = [Asked(i, limit, serving[i], limits) for i in sorted(firsts.values()) for limit, limits in wishes]
    return [_told(one, from_every_start) for one in every]


def _told(one: Asked, from_every_start: bool | None) -> Asked:
    """With its policy told so."""
    policy: Any = one.policy
    wishes = {} if from_every_start is None else {"from_every_start": from_every_start}
    return one._replace(policy=policy.with_limit(list(one.limits) if one.limits else one.limit, **wishes))


def _wish(given: CostLimit, found: Trained) -> tuple[tuple[float, ...], tuple[Limit, ...]]:
    """Amounts of cost, [K], and the limits in words where one of them is on a tail."""
    names, place = found.config.cost_names, found.folder or found.config.data
    if in_words(given):
        limits = as_limits(given)
        return amounts(limits, names, found.config.horizon), limits if any(x.tail for x in limits) else ()
    numbers: Any = given if isinstance(given, Sequence) else (given,)
    limit = tuple(float(x) for x in numbers)
    if len(limit) != len(names) or not all(0 <= x < float("inf") for x in limit):
        raise PdocrlError(f"{place}: cost limit {limit} must be {len(names)} number(s) of at least 0, one per cost.")
    return limit, ()


def with_limit(policy: Policy, limit: tuple[float, ...] | list[str]) -> Policy | None:
    """The policy asked for this limit; None for one that satisfies the limit it was trained for."""
    return policy.with_limit(limit) if isinstance(policy, CostConditioned) else None


def training_numbers(found: Trained) -> list[int]:
    """[R] which training each run belongs to, as recorded; files of 0.2 do not say, and the agent is asked."""
    if found.config.training:
        return found.config.training
    from pdocrl.agents.registry import find_agent
    from pdocrl.training.trainer import trainings

    try:
        agent = find_agent(found.config.agent)
        return [int(number) for number in trainings(agent, found.config.make_runs(agent))[1]]
    except PdocrlError:
        return list(range(len(found.config.runs)))

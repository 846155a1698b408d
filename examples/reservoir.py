# %% [markdown]
# # Reservoirs: two lakes, irrigation, levels within their bounds
#
# `Reservoir_ippc2023` of `rddlrepository`, simulated by `pyRDDLGym`: an upper lake flows into a lower
# one, the lower one to the fields and the sea; rain is random. Every day one of six pairs of gates is
# chosen; three operators did it by habits of their own. Reward: water for the fields, up to the day's
# demand, in tens of units. Limit: on average at most 6 of a season's 40 days with a lake outside the
# bounds the simulator gives it.

# %%
import numpy as np
import pandas as pd
import pyRDDLGym

import pdocrl
from pdocrl.policies.row_policy import load
from pdocrl.portfolio import tables

DAYS, SEASONS, LIMIT = 40, 400, 6
GATES = {f"{upper}/{lower}": (upper, lower) for upper in (0, 8) for lower in (0, 8, 16)}  # released a day
LAKES = pyRDDLGym.make("Reservoir_ippc2023", "1")
NOT_FLUENTS = LAKES.model.ground_vars_with_values(LAKES.model.non_fluents)
LOWEST, HIGHEST = ({lake: NOT_FLUENTS[f"{end}_LEVEL___{lake}"] for lake in ("t1", "t2")} for end in ("MIN", "MAX"))
print("lower lake", LOWEST["t1"], HIGHEST["t1"], "upper lake", LOWEST["t2"], HIGHEST["t2"])


# %%
def simulate(choose, seasons, seed):
    """Seasons run by `choose(columns, operator, rng) → gates`; a row per day."""
    rng, rows = np.random.default_rng(seed), []
    for season in range(seasons):
        levels, _ = LAKES.reset(seed=1_000_000 * seed + season)
        operator, dry = "ABC"[rng.integers(3)], rng.uniform(0, 4)
        for day in range(DAYS):
            demand = 7 + dry + 4 * np.sin(np.pi * day / DAYS) + rng.normal(0, 1)
            seen = {
                "upper": round(levels["rlevel___t2"] * rng.normal(1, 0.02), 1),  # a gauge's error
                "lower": round(levels["rlevel___t1"] * rng.normal(1, 0.02), 1),
                "demand": round(demand, 1),
                "day": day,
            }
            gates = choose(seen, operator, rng)
            upper, lower = GATES[gates]
            water = min(levels["rlevel___t1"], lower, demand) / 10
            levels, *_ = LAKES.step({"release___t2": upper, "release___t1": lower})
            outside = any(not LOWEST[lake] <= levels[f"rlevel___{lake}"] <= HIGHEST[lake] for lake in LOWEST)
            row = {"season": season, **seen, "gates": gates, "operator": operator, "water": water}
            rows.append({**row, "outside": int(outside), "terminal": day == DAYS - 1})
    return pd.DataFrame(rows)


def habits(seen, operator, rng):
    if rng.random() < 0.2:
        return str(rng.choice(list(GATES)))
    if operator == "A":  # keeps the lakes full
        return f"{8 * (seen['upper'] > 95)}/{16 if seen['lower'] > 125 else 8 * (seen['lower'] > 90)}"
    if operator == "B":  # serves the fields while there is water
        return f"{8 * (seen['upper'] > 78)}/{(16 if seen['demand'] > 11 else 8) * (seen['lower'] > 30)}"
    return f"{8 * (seen['lower'] < 60)}/{16 if seen['demand'] > 13 else 8}"  # follows the demand alone


log = simulate(habits, SEASONS, seed=0)
log.head(3)

# %% [markdown]
# ## Solve
#
# Learners are fitted on one part of the seasons and judged on the other; each operator is a candidate.

# %%
found = pdocrl.solve(
    log,
    limits=[f"outside<={LIMIT}"],
    state_columns=["upper", "lower", "demand"],
    columns={"episode": "season", "action": "gates", "reward": "water", "decider": "operator", "step": "day"},
    horizon=DAYS,
)
record = found.record
tables.deciders(record).show()
tables.candidates(record).show()
print(found.summary())

# %% [markdown]
# ## Truth
#
# The exported policy (NumPy alone) runs new seasons of the simulator.

# %%
found.save("policy")
policy = load("policy", seed=0)


def learned(seen, operator, rng):
    return str(policy.act({name: seen[name] for name in ("upper", "lower", "demand")}, step=seen["day"]))


def per_season(choose):
    return simulate(choose, 200, seed=1).groupby("season")[["water", "outside"]].sum()


played, behaviour = per_season(learned), per_season(habits)
over = float((played["outside"] > LIMIT).mean())
print("policy   ", played.mean().round(2).to_dict(), f"seasons over the limit: {over:.0%}")
print("operators", behaviour.mean().round(2).to_dict())

# %%
water, outside = (record.policy.held_out[name].value for name in ("reward", "outside"))
summary = {
    "problem": "reservoirs (`rddlrepository`), `solve`",
    "limits": f"days outside a lake's bounds ≤ {LIMIT} a season",
    "believed": f"{water:.1f} / {outside:.2f}",
    "stated": f"{record.status}: {record.chosen}",
    "true": f"{played['water'].mean():.1f} / {played['outside'].mean():.2f}"
    f" (operators {behaviour['water'].mean():.1f} / {behaviour['outside'].mean():.2f})",
    "satisfied": bool(played["outside"].mean() <= LIMIT),
}

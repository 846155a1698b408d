# %% [markdown]
# # Insulin dosing: a patient simulator, time below 70 mg/dl
#
# `simglucose` has the UVA/Padova model of patients with type 1 diabetes. Every half hour of a day one
# of five bolus sizes is given; four therapists did it by habits of their own. Reward: half-hours with
# glucose in 70–180 mg/dl. Limit: on average at most 1.5 half-hours of a day below 70 mg/dl. A toy
# task on a simulator, not medical advice.

# %%
import sys
from types import SimpleNamespace

import gymnasium.envs.registration
import numpy as np
import pandas as pd

# simglucose asks for `gym`, whose successor has the function it needs.
sys.modules.update({"gym": gymnasium, "gym.envs": gymnasium.envs, "gym.envs.registration": gymnasium.envs.registration})
from simglucose.patient.t1dpatient import Action, T1DPatient  # noqa: E402

import pdocrl  # noqa: E402
from pdocrl.policies.row_policy import load  # noqa: E402
from pdocrl.portfolio import tables  # noqa: E402

STEPS, LIMIT, DAYS = 30, 1.5, 600  # half-hours from 7 to 22 o'clock
DOSES = (0.0, 1.0, 2.0, 4.0, 6.0)  # units of bolus insulin
PERSON = T1DPatient.withName("adult#001")
PARAMS = SimpleNamespace(**{str(k): v for k, v in PERSON._params.items()})
BASAL = PARAMS.u2ss * PARAMS.BW / 6000  # U/min

# %% [markdown]
# ## The patient
#
# Half an hour is integrated by fourth-order Runge–Kutta with steps of 2.5 minutes; meals are eaten and
# boluses given in its first five minutes.


# %%
def half_hour(x, carbs, dose, stomach):
    """State [13] after half an hour; `stomach` is (content at the last meal in mg, eaten since in g)."""
    for k in range(12):
        early = k < 2
        action = Action(CHO=carbs / 5 if early else 0.0, insulin=BASAL + (dose / 5 if early else 0.0))

        def slope(y, action=action):
            return T1DPatient.model(0, y, action, PARAMS, *stomach)

        a = slope(x)
        b = slope(x + 1.25 * a)
        c = slope(x + 1.25 * b)
        x = x + 2.5 / 6 * (a + 2 * b + 2 * c + slope(x + 2.5 * c))
    return x


def simulate(choose, days, seed):
    """Days treated by `choose(columns, therapist, rng) → index of a dose`; a row per half-hour."""
    rng, rows = np.random.default_rng(seed), []
    for day in range(days):
        x = PERSON.init_state.astype(float) * 1.0
        x[[3, 4, 12]] *= rng.uniform(0.8, 1.25)
        meals = {int(rng.integers(1, 4)): 50.0, int(rng.integers(10, 14)): 70.0, int(rng.integers(21, 25)): 80.0}
        therapist, stomach, before, active = "ABCD"[rng.integers(4)], (0.0, 0.0), None, 0.0
        for step in range(STEPS):
            carbs = round(meals.get(step, 0.0) * rng.uniform(0.7, 1.3))
            glucose = x[12] / PARAMS.Vg * rng.normal(1, 0.04)  # a sensor's error
            seen = {
                "glucose": round(glucose, 1),
                "trend": round(glucose - (glucose if before is None else before), 1),
                "carbs": carbs,
                "active_insulin": round(active, 2),
                "half_hour": step,
            }
            dose = choose(seen, therapist, rng)
            if carbs:
                stomach = (x[0] + x[1], float(carbs))
            x, before, active = half_hour(x, carbs, DOSES[dose], stomach), glucose, 0.8 * active + DOSES[dose]
            true = x[12] / PARAMS.Vg
            row = {"day": day, **seen, "dose": DOSES[dose], "therapist": therapist, "in_range": int(70 <= true <= 180)}
            rows.append({**row, "low": int(true < 70), "step": step, "terminal": step == STEPS - 1})
    return pd.DataFrame(rows)


def habits(seen, therapist, rng):
    if rng.random() < 0.2:
        return int(rng.integers(len(DOSES)))
    per_gram = {"A": 0.03, "B": 0.06, "C": 0.09, "D": 0.06}[therapist]
    wanted = per_gram * seen["carbs"] + max(0.0, seen["glucose"] - 170) / 60 * (therapist in "CD")
    return int(np.argmin(np.abs(np.array(DOSES) - max(0.0, wanted - 0.3 * seen["active_insulin"]))))


log = simulate(habits, DAYS, seed=0)
log.head(3)

# %% [markdown]
# ## Solve
#
# Learners are fitted on half of the days and judged on the other half; each therapist is a candidate.

# %%
found = pdocrl.solve(
    log,
    limits=[f"low<={LIMIT}"],
    state_columns=["glucose", "trend", "carbs", "active_insulin", "half_hour"],
    columns={"episode": "day", "action": "dose", "reward": "in_range", "decider": "therapist"},
    horizon=STEPS,
)
record = found.record
tables.deciders(record).show()
tables.candidates(record).show()
print(found.summary())

# %% [markdown]
# ## Truth
#
# The exported policy (NumPy alone) treats new days of the simulator.

# %%
found.save("policy")
policy = load("policy", seed=0)


def learned(seen, therapist, rng):
    return DOSES.index(float(policy.act(seen, seen["half_hour"])))


def per_day(choose):
    return simulate(choose, 200, seed=1).groupby("day")[["in_range", "low"]].sum()


played, behaviour = per_day(learned), per_day(habits)
print("policy    ", played.mean().to_dict(), f"days over the limit: {(played['low'] > LIMIT).mean():.0%}")
print("therapists", behaviour.mean().to_dict(), f"days over the limit: {(behaviour['low'] > LIMIT).mean():.0%}")

# %%
reward, low = (record.policy.held_out[name].value for name in ("reward", "low"))
summary = {
    "problem": "insulin (`simglucose` patient), `solve`",
    "limits": f"half-hours below 70 mg/dl ≤ {LIMIT} a day",
    "believed": f"{reward:.1f} / {low:.2f}",
    "stated": f"{record.status}: {record.chosen}",
    "true": f"{played['in_range'].mean():.1f} / {played['low'].mean():.2f}"
    f" (therapists {behaviour['in_range'].mean():.1f} / {behaviour['low'].mean():.2f})",
    "satisfied": bool(played["low"].mean() <= LIMIT),
}

# %% [markdown]
# # A plain CSV of your own: columns instead of states
#
# A made-up clinic. Columns: age, a noisy marker, a ward (a word), the visit; four doses; a reward
# (health) and a cost (side effect) per visit; three physicians with habits. Nobody knows the states.
# Wanted: health with at most 1 side effect per patient on average. The simulator that made the file
# is used again at the end, for the truth only.

# %%
import numpy as np
import pandas as pd

import pdocrl
from pdocrl.policies.row_policy import load
from pdocrl.portfolio import tables

VISITS, PATIENTS, LIMIT = 12, 500, 1.0
WARDS = np.array(["north", "south"])


def simulate(choose, patients, seed):
    """Patients treated by `choose(row dict, physician, rng) → dose`; a row per visit."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        age, ward, ill = int(rng.integers(20, 90)), WARDS[rng.integers(2)], rng.uniform(0.5, 1.5)
        physician = "ABC"[rng.integers(3)]
        for visit in range(VISITS):
            marker = ill + rng.normal(0, 0.15)
            seen = {"age": age, "marker": round(marker, 3), "ward": str(ward), "visit": visit}
            dose = choose(seen, physician, rng)
            harm = float(rng.random() < 0.08 * dose * (1.6 if age > 65 else 0.7))
            health = 1.0 - abs(ill) + rng.normal(0, 0.05)
            last = visit == VISITS - 1
            row = {"patient": patient, **seen, "dose": dose, "physician": physician}
            rows.append({**row, "health": health, "side_effect": harm, "terminal": last})
            drift = 0.06 if ward == "north" else 0.02
            ill = max(0.0, ill + drift - 0.14 * dose + rng.normal(0, 0.05))
    return pd.DataFrame(rows)


def habits(seen, physician, rng):
    if rng.random() < 0.25:
        return int(rng.integers(4))
    if physician == "A":
        return 3 if seen["marker"] > 0.4 else 1
    return (1 if seen["marker"] > 0.5 else 0) if physician == "B" else 2


simulate(habits, PATIENTS, seed=0).to_csv("clinic.csv", index=False)
pd.read_csv("clinic.csv").head(3)

# %% [markdown]
# ## Solve
#
# Roles are named; the policy may look at the state columns and at the visit's number. Several learners are fitted on
# one part of the patients and judged on the other; each physician is a candidate too.

# %%
columns = {"episode": "patient", "action": "dose", "reward": "health", "decider": "physician", "step": "visit"}
found = pdocrl.solve(
    "clinic.csv",
    limits=[f"side_effect<={LIMIT:g}"],
    state_columns=["age", "marker", "ward"],
    columns={**columns, "terminal": "terminal"},
    horizon=VISITS,
)
record = found.record
print(found.summary())

# %%
tables.deciders(record).show()
tables.candidates(record).show()

# %% [markdown]
# ## Truth

# %%
found.save("policy")
policy = load("policy", seed=0)  # NumPy alone


def learned(seen, physician, rng):
    return int(policy.act({name: seen[name] for name in ("age", "marker", "ward")}, step=seen["visit"]))


played = simulate(learned, 200, seed=1).groupby("patient")[["health", "side_effect"]].sum()
behaviour = simulate(habits, 200, seed=1).groupby("patient")[["health", "side_effect"]].sum()
share = float((played["side_effect"] > LIMIT).mean())
print("policy   ", played.mean().round(2).to_dict(), f"patients over the limit: {100 * share:.0f} %")
print("behaviour", behaviour.mean().round(2).to_dict())

# %%
health, harm = (record.policy.held_out[name].value for name in ("reward", "side_effect"))
summary = {
    "problem": "plain CSV with columns (clinic), `solve`",
    "limits": f"side effects ≤ {LIMIT:g} per patient",
    "believed": f"{health:.2f} / {harm:.2f}",
    "stated": f"{record.status}: {record.chosen}",
    "true": f"{played['health'].mean():.2f} / {played['side_effect'].mean():.2f}"
    f" (physicians {behaviour['health'].mean():.2f} / {behaviour['side_effect'].mean():.2f})",
    "satisfied": bool(played["side_effect"].mean() <= LIMIT),
}

# %% [markdown]
# # Sepsis: 713 states, 25 treatments, a limit on fluids
#
# The `icu-sepsis` package holds transition tables estimated from intensive-care records: clusters of
# patients, five doses of fluids times five of vasopressors, and what clinicians did. 2,000 stays are
# simulated with the clinicians' policy; reward 1 is survival. Wanted: more survivors with less fluid
# than the clinicians gave. The tables are a benchmark, not medical advice.

# %%
import numpy as np

import pdocrl
from pdocrl.table import Table
from pdocrl.tabular import Counts, evaluate
from pdocrl.tabular.examples import sepsis

GAMMA = 0.99
log = {name: np.asarray(column) for name, column in sepsis.simulate(patients=2000, seed=0).items()}
counts = Counts.from_arrays(
    log["state"],
    log["action"],
    log["next_state"],
    log["reward"],
    costs={"fluids": log["fluids"]},
    terminal=log["terminal"],
    episode=log["episode"],
    step=log["step"],
)
print(f"{len(log['state']):,} rows, {counts.n_states} states, {counts.n_actions} actions, {2000} stays")

# %% [markdown]
# ## Behaviour policy, and a limit below it

# %%
truth = sepsis.model(GAMMA, 0.0)
*_, clinicians, _ = sepsis.tables()
behaviour = evaluate(truth, clinicians)
LIMIT = round(0.9 * -float(behaviour.constraints[0]), 4)
print(f"clinicians: survival {behaviour.value / (1 - GAMMA):.3f} (discounted), fluids {-behaviour.constraints[0]:.4f}")
print(f"limit on fluids, 10 % less: {LIMIT}")

# %% [markdown]
# ## Solve

# %%
result = pdocrl.solve(counts, gamma=GAMMA, limits={"fluids": LIMIT}, resamples=20, refits=2)
print(result)
print(f"optimism bias of the reward: {result.intervals.optimism:.5f}")
print(f"time on pairs with few rows: {100 * result.low_count_share:.0f} %")

# %% [markdown]
# ## State, then truth
#
# Most of 713 × 25 pairs have few rows, so the estimate flatters itself: believed and true survival
# differ by more than the interval. The notes above say so, and the statement must be about costs.


# %%
def true_values(found):
    """Exact value of a policy; states the log never had are treated as the clinicians would."""
    policy = clinicians.copy()
    for s, label in enumerate(found.states):
        policy[int(label)] = 0.0
        policy[int(label), [int(a) for a in found.actions]] = found.policy[s]
    return evaluate(truth, policy)


rows = [["clinicians", "", "", behaviour.value, -behaviour.constraints[0]]]
real = true_values(result)
rows.append(["solve", result.value, result.costs[0], real.value, -real.constraints[0]])
heads = ["policy", "believed survival", "believed fluids", "true survival", "true fluids"]
table = [[name, *(v if v == "" else float(v) / (1 - GAMMA) for v in values)] for name, *values in rows]
Table.of(heads, table, "Discounted totals of a stay").show()

# %%
summary = {
    "problem": "sepsis (`icu-sepsis`), `solve`",
    "limits": f"fluids ≤ {LIMIT / (1 - GAMMA):.2f}",
    "believed": f"{result.value / (1 - GAMMA):.3f} / {result.costs[0] / (1 - GAMMA):.2f}",
    "stated": f"{result.status}, {100 * result.low_count_share:.0f} % of the time on few rows",
    "true": f"{real.value / (1 - GAMMA):.3f} / {-real.constraints[0] / (1 - GAMMA):.2f}"
    f" (clinicians {behaviour.value / (1 - GAMMA):.3f} / {-behaviour.constraints[0] / (1 - GAMMA):.2f})",
    "satisfied": bool(-real.constraints[0] <= LIMIT),
}

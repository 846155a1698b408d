# %% [markdown]
# # Shop inventory: finite states, two limits
#
# 200 shops ordered one good every evening for a year, each by its own rule with exceptions. The log
# has 73,000 rows: a state (kind of day, stock), an action (units ordered), a reward (profit) and two
# costs. Wanted: as much profit as possible with stockouts on at most 2 % of days and a delivery on at
# most 30 %. The log's simulator is known, so the policy can be held against the truth afterwards.

# %%
import pdocrl
from pdocrl.table import Table
from pdocrl.tabular import count_log, evaluate
from pdocrl.tabular.examples import inventory
from pdocrl.tabular.io.logs import find_log

LIMITS = {"stockout": 0.02, "delivery": 0.30}
counts = count_log(find_log("inventory"), costs=list(LIMITS))
print(f"{int(counts.n.sum()):,} rows, {counts.n_states} states, {counts.n_actions} actions")

# %% [markdown]
# ## Solve
#
# Values and costs are discounted averages per step, (1−γ)J. The linear program is exact; the
# multiplier is the profit gained per unit by which a limit is relaxed.

# %%
result = pdocrl.solve(counts, gamma=0.97, limits=LIMITS)
print(result)
for limit, price in zip(result.limits, result.multipliers, strict=True):
    print(f"{limit}: multiplier {price:.3f}")

# %% [markdown]
# ## State
#
# With `confidence` the limits are tightened until held-out data shows that they are satisfied.

# %%
shown = pdocrl.solve(counts, gamma=0.97, limits=LIMITS, confidence=0.95, resamples=50)
print(shown.status, shown)

# %% [markdown]
# ## Truth
#
# The simulator's own transition probabilities give the exact value of each policy.

# %%
truth = inventory.model(0.97, *LIMITS.values())
rows = [["behaviour policy", result.log_value, *result.log_costs, "", "", ""]]
for name, found in (("solve", result), ("solve, confidence 0.95", shown)):
    order = [list(map(str, found.states)).index(state) for state in inventory.STATES]
    actions = [list(map(int, found.actions)).index(action) for action in inventory.ORDERS]
    real = evaluate(truth, found.policy[order][:, actions])
    rows.append([name, found.value, *found.costs, real.value, *-real.constraints])
heads = ["policy", "profit", "stockout", "delivery", "true profit", "true stockout", "true delivery"]
Table.of(heads, rows, "Estimated from the log, and true (per day)").show()

# %%
_, value, stockout, delivery, profit, out, van = rows[-1]
summary = {
    "problem": "shop inventory, finite states, `solve`",
    "limits": "stockout ≤ 0.02, delivery ≤ 0.3",
    "believed": f"{value:.3f} / {stockout:.4f}, {delivery:.3f}",
    "stated": f"{shown.status.replace('_', ' ')} at 0.95",
    "true": f"{profit:.3f} / {out:.4f}, {van:.3f}",
    "satisfied": bool(out <= 0.02 and van <= 0.30),
}

# %% [markdown]
# # Recommendation: the Open Bandit sample, a limit on exposure
#
# The Open Bandit Dataset (ZOZOTOWN) logs which item was shown to whom, with what probability, and
# whether it was clicked. The `obp` package has 10,000 rows of two policies: Thompson sampling, from
# which is learned, and uniform random, which gives an unbiased value of any other policy. Actions are
# five price groups of items. Reward: a click. Limit: the dearest group on at most 20 % of impressions.

# %%
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd

import pdocrl
from pdocrl.policies.row_policy import load
from pdocrl.portfolio import tables

home = importlib.util.find_spec("obp")
if home is None:
    raise ModuleNotFoundError("no module named obp: pip install --no-deps obp==0.4.1", name="obp")
FOLDER = Path(home.origin).parent / "dataset" / "obd"  # the files alone; the package is not imported
FEATURES = [f"user_feature_{k}" for k in range(4)] + ["position"]
LIMIT = 0.20


def read(policy):
    """Impressions with the price group of the item shown."""
    table = pd.read_csv(FOLDER / policy / "men" / "men.csv", index_col=0)
    price = pd.read_csv(FOLDER / policy / "men" / "item_context.csv").set_index("item_id")["item_feature_0"]
    group = pd.qcut(price.rank(method="first"), 5, labels=[f"price{k}" for k in range(1, 6)]).astype(str)
    table["group"] = table["item_id"].map(group)
    table["dearest"] = (table["group"] == "price5").astype(int)
    table["impression"] = np.arange(len(table))
    # Short names of the hashed user features; rare ones become one.
    for name in FEATURES[:4]:
        common = table[name].value_counts().index[:6]
        table[name] = table[name].where(table[name].isin(common), "other").str[:6]
    return table, group.value_counts() / len(group)


log, _ = read("bts")
print(f"{len(log):,} impressions, {log['click'].sum()} clicks, dearest group on {log['dearest'].mean():.1%}")

# %% [markdown]
# ## Solve
#
# An impression is an episode of one step.

# %%
found = pdocrl.solve(
    log[["impression", "group", "click", "dearest", *FEATURES]],
    limits=[f"dearest<={LIMIT}"],
    state_columns=FEATURES,
    columns={"episode": "impression", "action": "group", "reward": "click"},
    horizon=1,
)
record = found.record
tables.candidates(record).show()
print(found.summary())

# %% [markdown]
# ## Truth
#
# The random policy showed each group in proportion to its items, so Σ π(a|x)/p(a) · click over its rows
# is unbiased for any policy π, with a standard error that the few clicks make large.

# %%
found.save("policy")
policy = load("policy", seed=0)
random, share = read("random")
cases = random.drop_duplicates(FEATURES)[FEATURES]
known = {}
for case in cases.itertuples(index=False):
    known[tuple(case)] = policy.probabilities(dict(zip(FEATURES, case, strict=True)), step=0)
chosen = [known[tuple(row)] for row in random[FEATURES].itertuples(index=False)]
weights = np.array([pi.get(g, 0.0) / share[g] for pi, g in zip(chosen, random["group"], strict=True)])
click = weights * random["click"]
exposure = float(np.mean([pi.get("price5", 0.0) for pi in chosen]))
error = click.std() / np.sqrt(len(click))
print(f"policy: {click.mean():.4f} ± {error:.4f} clicks an impression, dearest group on {exposure:.1%}")
print(f"random: {random['click'].mean():.4f}, Thompson sampling: {log['click'].mean():.4f}")

# %%
reward, dearest = (record.policy.held_out[name].value for name in ("reward", "dearest"))
summary = {
    "problem": "recommendation (Open Bandit sample), `solve`",
    "limits": f"dearest group ≤ {LIMIT:.0%} of impressions",
    "believed": f"{reward:.4f} / {dearest:.3f}",
    "stated": f"{record.status}: {record.chosen}",
    "true": f"{click.mean():.4f} ± {error:.4f} / {exposure:.3f}",
    "satisfied": bool(exposure <= LIMIT),
}

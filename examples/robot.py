# %% [markdown]
# # A robot: one policy for every cost limit
#
# BallRun: a ball is paid for speed and costs 1 for each step beyond a boundary or above a speed. 400
# logged episodes ship with the package. `dial` is trained once and asked for three limits.

# %%
import pdocrl
from pdocrl.table import Table

data = pdocrl.load("BallRun")
LIMITS = [10, 40, 70]
best = [data.reward_return[data.cost_return[:, 0] <= limit].max() for limit in LIMITS]
print(f"{data.n_episodes} episodes, {len(data):,} transitions, cost up to {data.cost_return.max():.0f}")

# %% [markdown]
# ## Train
#
# Small networks and few steps, so that the notebook takes minutes; leave them out in earnest.

# %%
settings = {"hidden": (128, 128), "model_hidden": (64, 64), "batch_size": 256}
trained = pdocrl.train(data, "dial", cost_limit=LIMITS, seed=[0], steps=4000, settings=settings)

# %% [markdown]
# ## Predict, then play
#
# Before anything is played, the learned dynamics ensemble predicts return and an upper estimate of
# cost at each limit. Then the policy plays 20 episodes in the simulator.

# %%
scores = pdocrl.evaluate(trained, episodes=20, cost_limit=LIMITS)
rows, within = [], []
for run, logged in zip(scores.runs, best, strict=True):
    said = trained.policies[run.run].network.predicted(run.cost_limit)
    over = sum(episode.cost[0] > run.cost_limit[0] for episode in run.episodes)
    predicted = [said.reward, float(said.bound[0])]
    within.append(said.within)
    rows.append([run.cost_limit[0], *predicted, run.reward, run.cost[0], f"{over} of 20", float(logged)])
heads = ["limit", "predicted return", "predicted cost at most", "return", "cost", "episodes over", "best logged return"]
Table.of(heads, rows, "Predicted from the log, and played").show()

# %%
limit, said, bound, reward, cost, over, _ = rows[1]
summary = {
    "problem": "robot (Bullet BallRun), `train`",
    "limits": f"cost ≤ {limit:g} (and {LIMITS[0]}, {LIMITS[2]})",
    "believed": f"{said:.0f} / at most {bound:.1f}",
    "stated": "predicted within" if all(within) else "not predicted within",
    "true": f"{reward:.0f} / {cost:.1f}, {over} episodes over",
    "satisfied": all(row[4] <= row[0] for row in rows),
}

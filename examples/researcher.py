# %% [markdown]
# # An hour of research: own settings, callbacks, critics, densities, own environment
#
# The packaged BallRun log in Python alone: look, filter, split; three agents with settings of their
# own; curves; what the critics say; the density ratio; samples and log-probabilities; save and
# load; an environment given as a function; a LaTeX table. Networks and steps are small, so that the
# notebook takes minutes.

# %%
import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import pdocrl
from pdocrl.callbacks import Checkpoint, EarlyStopping, Evaluate
from pdocrl.loggers import History
from pdocrl.table import Table

data = pdocrl.load("BallRun")
print(data)

# %% [markdown]
# ## Look, filter, split
#
# Episodes are objects; datasets are cut by them.

# %%
best = max(data.episodes, key=lambda episode: episode.reward_return)
cheap = data.filter(lambda episode: episode.cost_return[0] <= 20)
learn, judge = data.split(0.8, seed=0)
print(best, "\n", cheap, "\n", learn.n_episodes, "episodes to learn from,", judge.n_episodes, "to judge with")
print(pdocrl.to_dataframe(cheap).groupby("episode")[["reward", "cost"]].sum().describe().loc[["min", "50%", "max"]])

# %% [markdown]
# ## An environment of one's own
#
# The simulator need not be there: any function that makes a Gymnasium environment does, here a
# stand-in with the log's dimensions, in which speed pays and speed above 0.5 costs.


# %%
class Stub(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (7,))
    action_space = gymnasium.spaces.Box(np.float32(data.action_low), np.float32(data.action_high))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.normal(size=7).astype(np.float32), {}

    def step(self, action):
        self.time += 1
        speed = float(np.abs(action).mean())
        obs = self.np_random.normal(size=7).astype(np.float32)
        return obs, speed, False, self.time == 20, {"cost": float(speed > 0.5)}


# %% [markdown]
# ## Three agents, with callbacks
#
# Settings are keywords; callbacks are objects or functions of the view; loggers keep metrics.

# %%
small = {"hidden": [64, 64], "batch_size": 128}
histories, trained = {}, {}
for name, more in {"bc": {}, "caps_iql": {"heads": 2}, "pdocrl": {"learning_rate": 1e-3}}.items():
    histories[name] = History()
    trained[name] = pdocrl.train(
        learn,
        name,
        cost_limit=20,
        steps=600,
        log_every=100,
        out=f"runs/{name}",
        callbacks=[
            Evaluate(Stub, every=300, episodes=3),
            Checkpoint(every=300, best="evaluation/reward"),
            EarlyStopping("evaluation/reward", patience=5, every=300),
        ],
        loggers=[histories[name]],
        **small,
        **more,
    )
    print(trained[name], trained[name].history.names)
print(pdocrl.load_trained("runs/bc/checkpoints/best"), "is the best of bc's checkpoints")

# %% [markdown]
# ## Curves

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3))
for name, history in histories.items():
    axes[0].plot(history.steps, history["actor_loss"][:, 0], label=name)
axes[0].set(xlabel="step", ylabel="actor loss")
axes[0].legend()
saddle = trained["pdocrl"]
axes[1].plot(histories["pdocrl"].steps, histories["pdocrl"]["lambda"][:, 0])
axes[1].set(xlabel="step", ylabel="λ")
figure.tight_layout()
figure.savefig("curves.pdf")

# %% [markdown]
# ## What was learned
#
# Critics of cost on a grid of actions, and the density ratio over the log, in the data's units.

# %%
obs, action = judge.obs[:500], judge.action[:500]
units = (np.float32(data.action_low), np.float32(data.action_high))
real = units[0] + (action + 1) / 2 * (units[1] - units[0])
grid = np.stack(np.meshgrid(*(np.linspace(lo, hi, 15) for lo, hi in zip(*units, strict=True))), -1).reshape(-1, 2)
values = trained["caps_iql"].q_cost(np.repeat(obs[:1], len(grid), 0), grid)[:, 0]
ratio = saddle.ratio(obs, real)
figure, axes = plt.subplots(1, 2, figsize=(8, 3))
axes[0].contourf(grid[:, 0].reshape(15, 15), grid[:, 1].reshape(15, 15), values.reshape(15, 15))
axes[0].set(xlabel="first action", ylabel="second action", title="Q_c")
axes[1].hist(ratio, bins=30)
axes[1].set(xlabel="density ratio w", ylabel="transitions")
figure.tight_layout()
print("λ as reward for a unit of cost:", saddle.multipliers[0])

# %% [markdown]
# ## Samples and log-probabilities
#
# The actor has become sharp: actions that were logged have next to no density under it.

# %%
policy = saddle.policy(cost_limit=20)
drawn = policy.sample(obs, 0)
print("acts", policy.act(obs[0]), "log π of what it drew", policy.log_prob(obs, drawn).mean().round(2))
print("log π of what was logged", np.median(policy.log_prob(obs, real)).round(2))

# %% [markdown]
# ## Save, load, resume, compare
#
# A policy knows the limit it was trained for. The record says which environment was played: it is
# not the task's simulator.

# %%
again = pdocrl.load_policy("runs/pdocrl", cost_limit=20)
assert (again.act(obs) == policy.act(obs)).all()
longer = pdocrl.resume("runs/bc", learn, steps=700)
scores = {name: pdocrl.evaluate(t, 5, env=Stub, workers=0) for name, t in trained.items()}
print(again, pdocrl.evaluate(again, 5, env=Stub, workers=0), sep="\n")
played = scores["bc"]
print(played.environment, "in place of the simulator:", played.own_environment, played.played.commit != "")
rows = [(name, s.runs[0].reward, s.runs[0].cost[0], "yes" if s.runs[0].safe else "no") for name, s in scores.items()]
print(Table.of(["agent", "reward", "cost", "within 20"], rows, "Five episodes in the stand-in", "stub").latex())

# %%
summary = {
    "problem": "an hour of research in Python (BallRun)",
    "limits": "–",
    "believed": "–",
    "stated": "bc, caps_iql, pdocrl, 600 steps of 64 × 64",
    "true": f"mean density ratio {ratio.mean():.2f}, λ {float(saddle.multipliers[0, 0]):.3f}",
    "satisfied": "–",
}

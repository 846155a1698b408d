# %% [markdown]
# # Driving: a road with traffic and five choices
#
# `highway-env`: left, idle, right, faster, slower. The log is of drivers who follow rules, some fast and
# some slow, with errors. Reward: the simulator's own, for progress without a crash. Cost: a second above
# 26 m/s. `dial` is trained once on discrete actions and asked for two limits.

# %%
import gymnasium
import highway_env
import numpy as np

import pdocrl
from pdocrl.envs.rollout import rollout
from pdocrl.table import Table

LEFT, IDLE, RIGHT, FASTER, SLOWER = range(5)
STEPS, LIMITS = 20, [2, 6]


class Speeding(gymnasium.Wrapper):
    """The observation as a vector, and a cost of 1 for a second above 26 m/s."""

    def __init__(self, env):
        super().__init__(env)
        low = np.full(25, -np.inf, np.float32)
        self.observation_space = gymnasium.spaces.Box(low, -low, dtype=np.float32)

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return obs.reshape(-1).astype(np.float32), info

    def step(self, action):
        obs, reward, ended, cut, info = self.env.step(int(action))
        return obs.reshape(-1).astype(np.float32), reward, ended, cut, {**info, "cost": float(info["speed"] > 26)}


def make_road():
    if hasattr(highway_env, "register_highway_envs"):
        highway_env.register_highway_envs()
    env = gymnasium.make("highway-fast-v0", max_episode_steps=STEPS)
    return Speeding(env)


class Drivers:
    """Each episode has a driver with a wished speed and a gap kept; 3 % of the choices are errors."""

    def begin(self, seed):
        rng = np.random.default_rng(seed)
        wish, gap = rng.choice([20.0, 25.0, 30.0]), rng.uniform(15, 40)

        def drive(obs, *_):
            ego, *others = np.asarray(obs).reshape(5, 5)  # present, x, y, two speeds, scaled
            ahead = [car for car in others if car[0] > 0 and abs(12 * car[2]) < 2 and 0 < 200 * car[1] < gap]
            if rng.random() < 0.03:
                return np.int64(rng.integers(5))
            if ahead:
                return np.int64(rng.choice([LEFT, RIGHT, SLOWER]))
            return np.int64(FASTER if 80 * ego[3] < wish - 2 else SLOWER if 80 * ego[3] > wish + 2 else IDLE)

        return drive


played = rollout(make_road, Drivers(), episodes=150, record=True, workers=0)
data = played.dataset()
print(f"{data.n_episodes} episodes, {len(data):,} rows; cost of an episode up to {data.cost_return.max():.0f}")

# %%
settings = {"hidden": (128, 128), "model_hidden": (64, 64), "batch_size": 256}
trained = pdocrl.train(data, "dial", cost_limit=LIMITS, seed=[0], steps=3000, settings=settings)

# %% [markdown]
# ## Predict, then play

# %%
scores = pdocrl.evaluate(trained, episodes=10, cost_limit=LIMITS, env=make_road, workers=0)
rows, within = [], []
for run in scores.runs:
    said = trained.policies[run.run].network.predicted(run.cost_limit)
    over = sum(episode.cost[0] > run.cost_limit[0] for episode in run.episodes)
    predicted = [said.reward, float(said.bound[0])]
    within.append(said.within)
    rows.append([run.cost_limit[0], *predicted, run.reward, run.cost[0], f"{over} of 10"])
heads = ["limit", "predicted return", "predicted cost at most", "return", "cost", "episodes over"]
Table.of(heads, rows, "Predicted from the log, and played").show()

# %%
limit, said, bound, reward, cost, over = rows[-1]
summary = {
    "problem": "driving (`highway-env`), `train`",
    "limits": f"seconds above 26 m/s ≤ {limit:g} (and {LIMITS[0]})",
    "believed": f"{said:.1f} / at most {bound:.1f}",
    "stated": "predicted within" if all(within) else "not predicted within",
    "true": f"{reward:.1f} / {cost:.1f}, {over} episodes over",
    "satisfied": all(row[4] <= row[0] for row in rows),
}

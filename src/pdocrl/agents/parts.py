"""Where these pieces were before they had files of their own; for code that still imports them from here."""

from pdocrl.agents.acting import mode_policy, network_policy
from pdocrl.agents.agent import per_constraint
from pdocrl.agents.candidates import LATENT_CLIP, best_candidate, mix_costs, mix_twins
from pdocrl.data.dataset import Dataset
from pdocrl.nn.optimise import adam_step, clip_norm, sum_over
from pdocrl.nn.ratio import clip_inward, density_ratio

__all__ = [
    "LATENT_CLIP", "adam_step", "best_candidate", "clip_inward", "clip_norm", "density_ratio", "mix_costs", "mix_twins",
    "mode_policy", "network_policy", "per_constraint", "rows_of_episodes", "sum_over",
]  # fmt: skip

rows_of_episodes = Dataset.rows_of

"""Simulators behind the Gymnasium API, and episodes played in them."""

from pdocrl.envs.bullet import split_run_costs
from pdocrl.envs.episode import Episodes
from pdocrl.envs.registry import make
from pdocrl.envs.rollout import RolloutError, Rollouts, rollout

__all__ = ["Episodes", "RolloutError", "Rollouts", "make", "rollout", "split_run_costs"]

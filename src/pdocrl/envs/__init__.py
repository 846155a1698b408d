"""Simulators behind the Gymnasium API, and episodes played in them."""

from pdocrl.envs.bullet import make, split_run_costs

__all__ = ["make", "split_run_costs"]

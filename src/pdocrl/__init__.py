"""Offline constrained reinforcement learning: from logged data to a policy that earns more and keeps its limits."""

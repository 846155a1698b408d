"""The paper's Algorithm 1 with general function classes, between tables and networks.

solved = pdocrl.approximate.solve(log, gamma=0.97, limits=["cost<=0.05"], features="cells", size=100)
solved.policy.act(state); solved.gap; solved.multipliers; solved.save("policy.json")
"""

from pdocrl.approximate.api import solve
from pdocrl.approximate.record import Solved

__all__ = ["Solved", "solve"]

"""CAPS, constraint-adaptive policy switching: what both of its kinds, `caps_iql` and `caps_sac`, share.

Several heads on one network, from the one that only maximises reward to the one that only avoids cost, are trained
once, without a limit. To act, of the heads whose Q_c is within what is left of the limit the one with the largest Q_r
is taken; where no head is, the one that costs least. `SwitchingPolicy` does that. docs/agents/caps.md.
"""

from __future__ import annotations

import numpy as np

from pdocrl.agents.base import AgentConfig, static
from pdocrl.agents.common.numpy_policy import layers_of
from pdocrl.errors import PdocrlError
from pdocrl.nn.mlp import MLP
from pdocrl.policies.cost_conditioned import SwitchingPolicy


class CAPSConfig(AgentConfig):
    """What both kinds are told."""

    hidden: tuple[int, ...] = static((512, 512))  # widths of the hidden layers
    heads: int = static(2)  # H: the first maximises reward, the last avoids cost, those between weigh both
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    target_rate: float = 0.005  # of the target networks


def price_of_cost(head: int, heads: int) -> float:
    """What cost counts against reward in a head between the first and the last: 2k/(H − 1)."""
    return 2 * head / (heads - 1)


def check_heads(config: CAPSConfig) -> None:
    if config.heads < 2:
        raise PdocrlError(f"setting heads is {config.heads}, must be at least 2: one for reward, one that avoids cost.")


def switching_policy(
    config: CAPSConfig, actor: MLP, action_dim: int, critic: MLP, cost_critic: MLP, discrete: bool = False
) -> SwitchingPolicy:
    """The heads' modes (the network's first H·A outputs), and the critics that choose among them."""
    weights, biases = layers_of(actor)
    modes = config.heads * action_dim
    return SwitchingPolicy(
        {
            "actor": ((*weights[:-1], weights[-1][:, :modes]), (*biases[:-1], biases[-1][:modes])),
            "critic": layers_of(critic),
            "cost_critic": layers_of(cost_critic),
        },
        horizon=float(config.horizon),
        gamma=float(config.gamma),
        limit=tuple(float(np.float32(limit)) for limit in config.cost_limit),
        heads=config.heads,
        discrete=discrete,
    )

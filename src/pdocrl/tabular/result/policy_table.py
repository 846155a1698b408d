"""A policy as an array that also acts in named states."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import PdocrlError
from pdocrl.tabular.result.policy import Row, TabularPolicy

if TYPE_CHECKING:
    from pdocrl.tabular.result.result import Result


class PolicyTable(NDArray[np.float64]):
    """π(a|s) as an array [S, A], in the order of `result.states` and `.actions`, that also acts in named states.

    What is cut from it or computed with it is an array alone.
    """

    _result: Result | None = None

    @classmethod
    def of(cls, policy: NDArray[np.float64], result: Result | None = None) -> PolicyTable:
        table = np.asarray(policy).view(cls)
        table._result = result
        return table

    def __array_finalize__(self, source: Any) -> None:
        self._result = None

    @cached_property
    def named(self) -> TabularPolicy:
        """The policy by names of states and actions, as `save` writes it."""
        if self._result is None:
            raise PdocrlError("this array was cut from a policy or computed with one; ask the result's own `policy`.")
        from pdocrl.tabular.result.report import policy_content

        return TabularPolicy(policy_content(self._result))

    def act(self, row: Row, step: int = 0, deterministic: bool = False) -> Any:
        """An action for a state, or for columns by name; drawn, or the likeliest. See `TabularPolicy.act`."""
        return self.named.act(row, step, deterministic)

    def sample(self, row: Row, rng: Any = None, step: int = 0) -> Any:
        """An action drawn with a NumPy generator or a seed."""
        return self.named.sample(row, rng, step)

    def log_prob(self, row: Row, action: Any, step: int = 0) -> Any:
        """log π(a|s)."""
        return self.named.log_prob(row, action, step)

    def probabilities(self, row: Row, step: int = 0) -> dict[Any, float]:
        """{action: probability} of the actions it may take."""
        return self.named.probabilities(row, step)

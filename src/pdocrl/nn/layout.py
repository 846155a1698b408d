"""How a matrix lies in memory, where that decides how fast a CPU multiplies it."""

from __future__ import annotations

import jax
from jaxtyping import Array


def rows_first(x: Array) -> Array:
    """x, of which a CPU has row after row in memory.

    XLA folds a transpose into the product it is for. Its products for a CPU take half as long if both factors, and what
    comes out, lie as they are written; a copy costs little beside that. A GPU's do not care.
    """
    return jax.lax.optimization_barrier(x) if jax.default_backend() == "cpu" else x  # type: ignore[no-untyped-call]

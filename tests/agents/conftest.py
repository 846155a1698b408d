"""Most of these tests' time is compilation of small programs, so the compiler is asked to hurry."""

from __future__ import annotations

import os

# Heard only if no test has used JAX before; otherwise the tests are slower, not different.
# The older code generator halves the time of compiling an agent (7.0 → 3.2 CPU s for `cpq`).
FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
)
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

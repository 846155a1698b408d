"""Most of these tests' time is compilation of small programs, so the compiler is asked to hurry."""

from __future__ import annotations

import os

# Heard only if no test has used JAX before; otherwise the tests are slower, not different.
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

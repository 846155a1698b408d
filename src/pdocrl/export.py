"""`export`: one trained policy as ONNX and as plain NumPy, for programs that know nothing of pdocrl."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

from pdocrl import policies
from pdocrl.errors import MissingExtraError, PdocrlError
from pdocrl.files import atomic_path, write_text
from pdocrl.policies import MLPPolicy, Policy
from pdocrl.training.train import load_trained


def export(folder: str | os.PathLike[str], out: str | os.PathLike[str], run: int = 0, onnx: bool = True) -> list[Path]:
    """Write out/policy.npz, out/policy.py (its reader, NumPy alone) and out/policy.onnx; returns their paths."""
    found = load_trained(folder)
    if not 0 <= run < len(found.policies):
        raise PdocrlError(f"{folder}: run {run} does not exist; there are runs 0 to {len(found.policies) - 1}.")
    policy, out = found.policies[run], Path(out)
    with atomic_path(out / "policy.npz") as path:
        policies.save(path, [policy], {"agent": found.plan.agent, "step": found.step, **found.plan.runs[run]})
    write_text(out / "policy.py", inspect.getsource(policies))
    written = [out / "policy.npz", out / "policy.py"]
    if onnx:
        model = to_onnx(policy)
        with atomic_path(out / "policy.onnx") as path:
            path.write_bytes(model.SerializeToString())
        written.append(out / "policy.onnx")
    return written


def to_onnx(policy: Policy) -> Any:
    """The policy as an ONNX model: input `obs` [batch, S], output `action` [batch, A], float32."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise MissingExtraError("ONNX export", "onnx") from None
    if not isinstance(policy, MLPPolicy):
        raise PdocrlError(f"a policy of kind {policy.kind!r} cannot be written as ONNX; use policy.npz (--no-onnx).")
    nodes, weights, value = [], [], "obs"
    last = len(policy.weights) - 1
    for i, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        weights += [numpy_helper.from_array(weight, f"weight_{i}"), numpy_helper.from_array(bias, f"bias_{i}")]
        nodes.append(helper.make_node("Gemm", [value, f"weight_{i}", f"bias_{i}"], [f"affine_{i}"]))
        value = "action" if i == last else f"hidden_{i}"
        nodes.append(helper.make_node("Tanh" if i == last else "Relu", [f"affine_{i}"], [value]))
    sizes = policy.weights[0].shape[0], policy.weights[-1].shape[1]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", sizes[0]])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", sizes[1]])],
        weights,
    )
    model = helper.make_model(graph, producer_name="pdocrl", opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model

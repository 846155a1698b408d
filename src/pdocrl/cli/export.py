"""`pdocrl export`."""

from __future__ import annotations

import tyro

from pdocrl.console import print_json


def export(
    folder: tyro.conf.Positional[str], /, *, out: str, run: int = 0, onnx: bool = True, json: bool = False
) -> None:
    """Write one trained policy for use elsewhere: ONNX, and plain NumPy with a loader that needs nothing else.

    Example:
        pdocrl export runs/ballrun --run 0 --out robot/

    Args:
        folder: what `pdocrl train --out` wrote.
        out: folder for policy.onnx, policy.npz and policy.py.
        run: which run of the training.
        onnx: leave out policy.onnx, which needs the extra `onnx`.
        json: print one JSON object.
    """
    from pdocrl.training.folder import export as write

    written = write(folder, out, run, onnx)
    if json:
        print_json({"run": run, "files": [str(path) for path in written]})
        return
    for path in written:
        print(path)

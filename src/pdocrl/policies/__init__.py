"""Trained policies as plain NumPy, ONNX and files that travel."""

"""The paper's counterexamples, algorithms, rivals and experiments, on top of `tabular`."""

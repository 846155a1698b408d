"""The learned dynamics of a dataset of vectors: an ensemble, calibrated on episodes it never saw, that policies act in.

dataset ─▶ `prepare` (groups ─▶ `learn` ─▶ `calibrate`), once ─▶ `rollouts` of each policy ─▶ `judge`
"""

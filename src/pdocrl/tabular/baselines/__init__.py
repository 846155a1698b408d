"""The methods the paper's two comparison tables name, and what practitioners use: from counts to a policy.

problem.py      what all of them start from: the log's own model, and programs over its occupancies
actors.py       π ∝ exp(η Σ f) against any critic
pdca.py         PDCA                                     tables: full coverage
adversarial.py  A-Crab and WSAC: critics by linear program
quadratic.py    PSPI and ATAC: critics in closed form
density.py      POCC, CORAL and PRO-RL: density ratios, extracted by the log's own policy
pessimistic.py  Xie's pessimism as one second-order cone program
dpdl.py         DPDL
spibb.py        SPIBB, Soft-SPIBB and MO-SPIBB: stay with the log's policy where it tried little
registry.py     all of them by name, with their parameter by theory and their grid
"""

"""Research around the paper, in the repository and not in the wheel: run from the repository's root.

    python -m research [FIGURE …]           the theory's figures: CSV, table, picture, page
    python -m research.measure OUT.csv      every tabular method on every family of problems
    python -m research.studies.NAME         hand-run studies

counterexamples, field        negative results of the paper and of the field, with every constant of their proofs
families, lucky               problems with known optima, and logs of them
known                         the algorithm for a known data distribution (Appendix B)
experiments/                  what each figure measures and draws
results/                      committed measurements
"""

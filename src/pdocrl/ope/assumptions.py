"""What estimates rest on, in words."""

from __future__ import annotations

SAME_PROCESS = "the process that was logged is the one the policy will meet"
INDEPENDENT = "episodes are independent of one another"
CALIBRATED = "the policy is to the logged behaviours what they are to each other (intervals are calibrated on them)"
NO_HIDDEN_CONFOUNDER = "whoever acted knew no more than {}: nothing else led to both decisions and outcomes"
DYNAMICS = [
    CALIBRATED,
    "observations tell all that matters of the past, up to the step before",
    NO_HIDDEN_CONFOUNDER.format("the observations"),
    SAME_PROCESS,
    INDEPENDENT,
]
BEHAVIOURS = [
    CALIBRATED,
    "a policy that acts like logged behaviours where they were stays where they stayed",
    NO_HIDDEN_CONFOUNDER.format("the observations"),
    SAME_PROCESS,
    INDEPENDENT,
]

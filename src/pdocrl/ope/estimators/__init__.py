"""Off-policy estimators for discrete actions on an `EventLog`, one file each, with the equation and the paper."""

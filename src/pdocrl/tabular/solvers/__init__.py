"""From counts to a policy: the Lagrangian, its saddle points (linear programs, planning, self-play), few rows."""

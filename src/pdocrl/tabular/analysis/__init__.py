"""Analyses of a result: along a limit, in one state, beside other policies, where more rows help."""

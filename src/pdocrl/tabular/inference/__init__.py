"""How far an answer can be trusted: bounds, bootstrap, sample splitting, safety tests, coverage."""

"""Episodes → scores: normalisation, protocols, intervals, `evaluate`."""

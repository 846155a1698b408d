"""From rows of a file, or of arrays, to counts: columns and their roles, labels, cells, episodes."""

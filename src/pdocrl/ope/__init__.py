"""What trained policies would earn and cost, from logged data alone."""

"""What the picture nodes compute: plain functions on numpy arrays, no graph and no torch."""

"""Foreign workflows to graphs (none in this release)."""

"""Model architectures; no family knows another."""

"""Inline Core: typed graphs in, durable runs, immutable takes out."""

"""LTX-2: videos with their sound in one pass."""

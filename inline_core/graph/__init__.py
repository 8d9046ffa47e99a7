"""Graphs as pure data: reading, checking, ordering, fingerprints."""

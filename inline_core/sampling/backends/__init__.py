"""Implementations of the batched sampler."""

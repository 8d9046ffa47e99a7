"""ERNIE-Image: a flow transformer over FLUX.2's latents that reads Ministral 3."""

"""Nodes that make and cut sigmas; their values are tested with the functions they call."""

from __future__ import annotations

from typing import Any

import pytest

from inline_core.errors import InvalidParam
from inline_core.graph.ports import PortKind, accepts
from inline_core.nodes import sigmas
from inline_core.nodes.base import spec_of
from inline_core.nodes.registry import node_specs
from inline_core.sampling.sigmas import published
from inline_core.sampling.sigmas.values import Sigmas
from inline_core.sampling.values import Latent

SPECS = {name: spec for name, spec in node_specs().items() if spec.category == "Sigmas"}
WITHOUT_A_MODEL = {
    "sigmas/manual",
    "sigmas/align-your-steps",
    "sigmas/flux2",
    "sigmas/ltxv",
    "sigmas/karras",
    "sigmas/exponential",
    "sigmas/split",
    "sigmas/split-denoise",
    "sigmas/flip",
    "sigmas/set-first",
}


def defaults(name: str) -> dict[str, Any]:
    return {param.key: param.default for param in SPECS[name].params}


def test_all_are_registered() -> None:
    assert set(SPECS) >= WITHOUT_A_MODEL
    assert accepts(PortKind.SIGMAS, PortKind.SIGMAS)
    assert not accepts(PortKind.SIGMAS, PortKind.LATENT)


@pytest.mark.parametrize("name", sorted(WITHOUT_A_MODEL))
def test_the_ports_are_sigmas_and_the_defaults_run(name: str) -> None:
    spec = SPECS[name]
    assert {port.kind for port in spec.inputs} <= {PortKind.SIGMAS, PortKind.LATENT}
    assert {port.kind for port in spec.outputs} == {PortKind.SIGMAS}
    assert "torch" not in spec.needs
    kinds = {PortKind.SIGMAS: Sigmas((1.0, 0.5, 0.0)), PortKind.LATENT: Latent(64, 64)}
    wired = {port.id: kinds[port.kind] for port in spec.inputs}
    outputs = spec.run(None, wired, defaults(name))
    assert set(outputs) == {port.id for port in spec.outputs}
    assert all(isinstance(value, Sigmas) for value in outputs.values())


def test_makers() -> None:
    assert sigmas.manual(sigmas="1 0.25") == Sigmas((1.0, 0.25))
    ays = sigmas.align_your_steps(model_type="SDXL", steps=10, denoise=0.5)
    assert ays == Sigmas(published.align_your_steps("SDXL", 10, 0.5))
    assert sigmas.flux2(steps=4) == Sigmas(published.flux2(4, 1024, 1024))
    assert sigmas.ltxv() == Sigmas(published.ltxv(20))
    assert sigmas.ltxv(tokens=4992).values == published.ltxv(20, 4992)
    assert sigmas.karras(steps=3, rho=5.0).values == published.karras(3, rho=5.0)
    assert sigmas.exponential(steps=3).steps == 3


def test_cutters() -> None:
    whole = Sigmas((1.0, 0.75, 0.5, 0.25, 0.0))
    high, low = sigmas.split(whole, step=1)
    assert (high.values, low.values) == ((1.0, 0.75), (0.75, 0.5, 0.25, 0.0))
    high, low = sigmas.split_denoise(whole, denoise=0.25)
    assert (high.values, low.values) == ((1.0, 0.75, 0.5, 0.25), (0.25, 0.0))
    assert sigmas.flip(whole).values == (0.0001, 0.25, 0.5, 0.75, 1.0)
    assert sigmas.set_first(whole, sigma=2.0).values == (2.0, 0.75, 0.5, 0.25, 0.0)


def test_the_two_outputs_of_a_split_have_names() -> None:
    for function in (sigmas.split, sigmas.split_denoise):
        ports = [(port.id, port.label) for port in spec_of(function).outputs]
        assert ports == [("high", "High"), ("low", "Low")]


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(InvalidParam, match="'x'"):
        sigmas.manual(sigmas="1, x")
    with pytest.raises(InvalidParam, match="sigma_max"):
        sigmas.karras(sigma_max=0.01)

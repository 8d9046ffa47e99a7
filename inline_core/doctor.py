"""`inline-core doctor` and `inline-core models`: what is there, what is missing, what to do."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from inline_core.devices.budget import Demand
from inline_core.devices.policy import DevicePolicy
from inline_core.devices.split import ModelFacts
from inline_core.errors import InlineError, ModelFileMissing
from inline_core.families.demand import OpenedFiles, demand_of, model_facts
from inline_core.families.registry import FAMILIES, open_catalog
from inline_core.loading.catalog import Catalog
from inline_core.loading.component import ComponentRef, Role
from inline_core.sampling.family import ModelFamily
from inline_core.server.serve import port_holder
from inline_core.server.services import disk_free
from inline_core.settings import Settings
from inline_core.version import __version__

_RUNTIME = ("torch", "diffusers", "transformers", "safetensors")
_SERVER = ("fastapi", "uvicorn", "sqlalchemy", "pillow", "av", "imageio-ffmpeg")
_GIB = 1024**3
_LOW_DISK_BYTES = 2 * _GIB


@dataclass(slots=True)
class Report:
    """Findings in order; `broken` if something must be done before rendering works."""

    lines: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    broken: bool = False

    def note(self, mark: str, what: str, detail: str) -> None:
        """Add one line."""
        self.lines.append(f"  {mark:<8}{what:<18}{detail}")

    def fault(self, what: str, detail: str, step: str) -> None:
        """Add a line for something missing, and what to do about it."""
        self.note("MISSING", what, detail)
        self.steps.append(step)
        self.broken = True

    def text(self) -> str:
        """The whole report."""
        steps = [f"  {number}. {step}" for number, step in enumerate(self.steps, 1)]
        ending = ["", "Next:", *steps] if steps else ["", "Everything needed is there."]
        return "\n".join([f"Inline Core {__version__}", *self.lines, *ending])


def examine(settings: Settings, policy: DevicePolicy | None = None) -> Report:
    """Look at everything a render needs.  Loads no model and downloads nothing.

    `policy` stands in for that of the hardware that is found.
    """
    report = Report()
    report.note("ok", "python", f"{platform.python_version()} at {sys.executable}")
    _packages(report, _SERVER, "server")
    _packages(report, _RUNTIME, "runtime")
    policy = policy or DevicePolicy(settings)
    device = policy.summary()
    report.note("ok", "device", f"{device['kind']} ({device.get('name')}): {device.get('reason')}")
    _links(report, device, policy)
    catalog = open_catalog(settings)
    for warning in catalog.warnings():
        report.note("note", "models", warning)
    _families(report, catalog, policy)
    _places(report, settings)
    return report


def _links(report: Report, device: Mapping[str, Any], policy: DevicePolicy) -> None:
    """Say how GPUs are linked and what the setting for splits is, and whether it can be."""
    if device["kind"] == "cuda":
        report.note("ok", "links", device["links"])
    try:
        policy.check_parallel()
    except InlineError as error:
        report.fault("parallel", error.message, error.message)
    else:
        report.note("ok", "parallel", device["parallel"])


def _packages(report: Report, names: Iterable[str], extra: str) -> None:
    for name in names:
        try:
            report.note("ok", name, version(name))
        except PackageNotFoundError:
            report.fault(name, "not installed", f'pip install "inline-core[{extra}]"')


def _families(report: Report, catalog: Catalog, policy: DevicePolicy) -> None:
    """Families whose models are there in detail, the others in one line."""
    absent: list[str] = []
    for family in FAMILIES.values():
        label = family.rules.label
        try:
            model = catalog.find(Role.DIFFUSION_MODEL, "", family=family.name)
        except ModelFileMissing:
            absent.append(label)
            continue
        except InlineError as error:
            report.fault(label, error.message, f"{label}: {error.message}")
            continue
        try:
            vae, text_encoder = catalog.companions(model)
        except InlineError as error:
            report.fault(label, error.message, f"{label}: {error.message}")
            continue
        encoders = ", ".join(item.name for item in text_encoder.all)
        report.note("ok", label, f"{model.name} + {vae.name} + {encoders}")
        doubt = catalog.doubt(model, vae)
        if doubt:
            report.note("note", label, doubt)
        _fit(report, family, catalog, policy, (model, vae, text_encoder))
        if model.variant == "demo":
            report.steps.append(
                f"{label}: only the small demo model is there; drop real files into models/ "
                "(see models/README.md)."
            )
    if len(absent) == len(FAMILIES):
        message = "no diffusion model is there: put files into models/ (see models/README.md)"
        report.fault("models", message, message)
    elif absent:
        report.note("note", "without files", ", ".join(absent))
    broken = [file for file in catalog.all_files() if file.status != "ready"]
    for file in broken:
        report.note("note", f"{file.category}/", f"{file.name}: {file.reason}")


def _fit(
    report: Report,
    family: ModelFamily,
    catalog: Catalog,
    policy: DevicePolicy,
    parts: tuple[ComponentRef, ComponentRef, ComponentRef],
) -> None:
    """Say where the pieces would go at the model's own size, and whether they fit."""
    size = catalog.defaults_of(parts[0])
    opened = OpenedFiles()
    named = dict(zip(("model", "vae", "text_encoder"), map(opened.open, parts), strict=True))
    width, height = size.get("width", 1), size.get("height", 1)
    demand = demand_of(family, named, width, height, 1, frames=size.get("frames", 1))
    plan = policy.plan(demand)
    needs = f"{plan.required_bytes / 1e9:.1f} of {plan.capacity_bytes / 1e9:.1f} GB"
    detail = f"{width}x{height}: {plan.rung}, needs {needs}"
    if plan.fits:
        report.note("ok", "", detail)
    else:
        report.note("note", "", f"{detail}; {plan.reasons[-1]}")
    facts = model_facts(parts[0], named["model"].identity, family)
    _split(report, family, policy, facts, demand)


def _split(
    report: Report, family: ModelFamily, policy: DevicePolicy, facts: ModelFacts, demand: Demand
) -> None:
    """Say how its passes are divided over several processes, or why they are not."""
    try:
        decision = policy.split(family.splits, facts, demand)
    except InlineError:
        return  # told once, of the setting
    if decision.problems:
        problems = "; ".join(decision.problems)
        report.fault("", f"cannot be split: {problems}", f"{family.rules.label}: {problems}")
        return
    how = f"split: {decision.split.in_words}" if decision.split else "not split"
    report.note("ok", "", f"{how}: {'; '.join(decision.reasons)}")


def _places(report: Report, settings: Settings) -> None:
    folder = settings.data_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = disk_free(folder)["freeBytes"]
    report.note("ok" if free > _LOW_DISK_BYTES else "note", "disk", f"{free / _GIB:.1f} GiB free")
    report.note("ok", "data", str(Path(settings.data_dir).resolve()))
    holder = port_holder(settings.port)
    state = f"in use by {holder}" if holder else "free"
    report.note("note" if holder else "ok", f"port {settings.port}", state)


def model_table(settings: Settings) -> str:
    """Every file of the models folders as a table."""
    rows = [("category", "file", "is", "size", "state")]
    for file in open_catalog(settings).all_files():
        identity = file.identity
        what = identity.in_words() if identity else "?"
        if identity and identity.variant:
            what = f"{what}, {identity.variant}"
        state = file.status if file.status == "ready" else f"{file.status}: {file.reason}"
        name = f"{file.name} (demo)" if file.source == "demo" else file.name
        rows.append((file.category, name, what, f"{file.size_bytes / 1e6:.1f} MB", state))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    )

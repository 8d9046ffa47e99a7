"""Numbers for Prometheus, read from the parts when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inline_core.server.services import Services, disk_free


def render_metrics(services: Services) -> tuple[bytes, str]:
    """The metrics page and its content type."""
    registry = CollectorRegistry()
    registry.register(_Numbers(services))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Numbers(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        """All metrics, in a stable order."""
        services = self._services
        runs = GaugeMetricFamily("inline_runs", "Runs in the database.", labels=["status"])
        for status, count in services.queries.counts().items():
            runs.add_metric([status], count)
        yield runs
        yield _gauge("inline_streams", "Open event streams.", services.hub.readers)
        yield _gauge("inline_queue_paused", "1 while paused.", int(services.orchestrator.paused))
        disk = disk_free(services.settings.data_dir)
        yield _gauge("inline_disk_free_bytes", "Free bytes for data.", disk["freeBytes"])
        cache = services.cache.stats()
        yield _gauge("inline_value_cache_bytes", "Values kept between nodes.", cache.size_bytes)
        yield _gauge("inline_value_cache_hits", "Values found in the cache.", cache.hits)
        yield _gauge("inline_value_cache_misses", "Values not found.", cache.misses)
        render = services.render.stats()
        sampler = dict(render.get("sampler") or {})
        yield _speeds(sampler.pop("speeds", {}))
        yield _refused(sampler.pop("refused", {}))
        yield from _nested("inline_render", {**render, "sampler": sampler})


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _speeds(speeds: Mapping[str, Mapping[str, float]]) -> Metric:
    """What batching gains: seconds a row by how many rows share a forward pass."""
    text = "Seconds a row of a forward pass takes, by rows in the pass."
    metric = GaugeMetricFamily("inline_sampler_row_seconds", text, labels=["kind", "rows"])
    for kind, known in speeds.items():
        for rows, milliseconds in known.items():
            metric.add_metric([kind, rows], milliseconds / 1e3)
    return metric


def _refused(refused: Mapping[str, int]) -> Metric:
    """Why waiting jobs could not join the running batch."""
    text = "Jobs that could not join the running batch at first, by reason."
    metric = GaugeMetricFamily("inline_sampler_refused", text, labels=["reason"])
    for reason, count in refused.items():
        metric.add_metric([reason], count)
    return metric


def _nested(prefix: str, values: Mapping[str, Any]) -> Iterator[Metric]:
    """A gauge for every number in a nested mapping, named by its path."""
    for key, value in values.items():
        name = f"{prefix}_{''.join(c if c.isalnum() else '_' for c in key)}"
        if isinstance(value, Mapping):
            yield from _nested(name, value)
        elif isinstance(value, int | float):
            yield _gauge(name, f"{prefix.removeprefix('inline_')}: {key}", float(value))

"""The composition root: every part is made here, once, and handed to who needs it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from filelock import FileLock, Timeout

from inline_core.devices.policy import DevicePolicy
from inline_core.downloads.queue import Downloads
from inline_core.engine.cache import ValueCache
from inline_core.engine.cluster import check_cluster
from inline_core.engine.estimate import Estimator
from inline_core.engine.executor import Executor, Workshop
from inline_core.engine.media_access import MediaAccess
from inline_core.engine.meeting import meeting_of
from inline_core.engine.orchestrator import Orchestrator
from inline_core.engine.progress import ProgressBoard
from inline_core.engine.render import TorchRender
from inline_core.engine.saving import TakeSaver
from inline_core.engine.stamps import content_stamps
from inline_core.errors import AlreadyRunning
from inline_core.families.registry import open_catalog
from inline_core.graph.spec import NodeSpec
from inline_core.loading.catalog import Catalog
from inline_core.loading.rules import CATEGORIES
from inline_core.nodes.registry import node_specs
from inline_core.runs.database import Database
from inline_core.runs.journal import Journal
from inline_core.runs.library import Library
from inline_core.runs.log import EventLog
from inline_core.runs.queries import Queries
from inline_core.server.descriptors import Descriptors
from inline_core.server.guard import is_loopback
from inline_core.server.streaming import StreamHub
from inline_core.settings import MIB, Settings
from inline_core.takes.files import ContentFiles

_log = structlog.get_logger(__name__)
_MEDIA_THREADS = 2


@dataclass(slots=True)
class Services:
    """All parts of a server.  `start` and `stop` are called once, by the application."""

    settings: Settings
    specs: Mapping[str, NodeSpec]
    catalog: Catalog
    render: TorchRender
    database: Database
    journal: Journal
    library: Library
    queries: Queries
    log: EventLog
    takes: ContentFiles
    assets: ContentFiles
    media: MediaAccess
    board: ProgressBoard
    cache: ValueCache
    hub: StreamHub
    orchestrator: Orchestrator
    descriptors: Descriptors
    estimator: Estimator
    downloads: Downloads
    media_pool: ThreadPoolExecutor
    lock: FileLock
    started_at: float = field(default_factory=time.time)

    def start(self) -> None:
        """Open the database, recover, begin to dispatch, and import torch in the background."""
        make_models_folder(self.settings.models_dir)
        self.database.on_commit(self.log.published)
        self.database.on_commit(self.orchestrator.committed)
        self.database.open()
        swept = self.takes.sweep() + self.assets.sweep()
        if swept:
            _log.info("unfinished files of an unclean stop removed", count=swept)
        self.orchestrator.start(paused=self.settings.start_paused)
        self.catalog.refresh()
        self.downloads.start()
        if self.settings.warm_up:
            self.render.warm_up()

    def stop(self) -> None:
        """Put running runs back in the queue and close everything; idempotent."""
        self.downloads.stop()
        self.orchestrator.stop()
        self.render.close()
        self.media_pool.shutdown(wait=True)
        self.database.close()
        self.lock.release()


def make_models_folder(folder: Path) -> None:
    """Give a fresh models folder its categories; one that is there is never touched."""
    if folder.exists():
        return
    try:
        for category in CATEGORIES:
            (folder / category).mkdir(parents=True)
    except OSError as error:
        _log.warning("the models folder could not be made", folder=str(folder), why=str(error))


def lock_data_dir(settings: Settings) -> FileLock:
    """Make sure that one server uses the data directory.  Raises: AlreadyRunning."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    # Taken on the main thread, released on the one that stops the services.
    lock = FileLock(settings.data_dir / "server.lock", thread_local=False)
    holder = settings.data_dir / "server.pid"
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        pid = holder.read_text().strip() if holder.exists() else "unknown"
        message = (
            f"Another server (process {pid}) uses the data folder "
            f"{settings.data_dir.resolve()}. Stop it, or start this one with --data-dir."
        )
        raise AlreadyRunning(message) from error
    holder.write_text(f"{os.getpid()}\n")
    return lock


def resolve_token(settings: Settings) -> str | None:
    """The token clients must send, or None.

    Beyond loopback there always is one unless `--no-auth` was said; a made-up one is kept in the
    data folder, readable by its owner only.
    """
    if settings.token:
        return settings.token
    if settings.no_auth or is_loopback(settings.host):
        return None
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    path = settings.data_dir / "token"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24))
    return path.read_text().strip()


def build_services(settings: Settings, specs: Mapping[str, NodeSpec] | None = None) -> Services:
    """Make every part; `specs` replaces the node types that are installed.

    Raises: AlreadyRunning; InvalidRequest for a split over GPUs that cannot be had here, or
    together with a cluster.
    """
    policy = DevicePolicy(settings)
    policy.check_parallel()
    meeting_of(settings)
    check_cluster(settings)
    lock = lock_data_dir(settings)
    specs = node_specs() if specs is None else specs
    catalog = open_catalog(settings)
    render = TorchRender(settings, catalog, policy)
    database = Database(settings.database_path)
    queries = Queries(database)
    log = EventLog(queries)
    board = ProgressBoard(log.notify)
    journal = Journal(database, max_queue=settings.max_queue, max_attempts=settings.max_attempts)
    takes = ContentFiles(settings.takes_dir)
    assets = ContentFiles(settings.assets_dir)
    library = Library(database, lambda file: takes.delete(file.sha256, file.extension))
    media_pool = ThreadPoolExecutor(_MEDIA_THREADS, thread_name_prefix="media")
    media = MediaAccess(
        queries,
        assets,
        takes,
        _allowed_roots(settings),
        settings.max_pixels,
        settings.input_folder,
    )
    cache = ValueCache(settings.cache_mb * MIB)
    workshop = Workshop(
        specs=specs,
        journal=journal,
        queries=queries,
        render=render,
        components=catalog,
        media=media,
        stamps=content_stamps(catalog, media),
        files=takes,
        saver=TakeSaver(
            takes,
            media_pool,
            metadata=settings.metadata,
            audio_format=settings.audio_format,
        ),
        cache=cache,
        board=board,
        max_pixels=settings.max_pixels,
    )
    orchestrator = Orchestrator(
        journal=journal,
        library=library,
        queries=queries,
        executor=Executor(workshop),
        board=board,
        walkers=settings.walkers,
        keep_runs=settings.keep_runs,
        keep_days=settings.keep_days,
    )
    estimator = Estimator(catalog, media, render.policy)
    hub = StreamHub(log, queries, board)
    log.listen(hub.notify)
    return Services(
        settings=settings,
        specs=specs,
        catalog=catalog,
        render=render,
        database=database,
        journal=journal,
        library=library,
        queries=queries,
        log=log,
        takes=takes,
        assets=assets,
        media=media,
        board=board,
        cache=cache,
        hub=hub,
        orchestrator=orchestrator,
        descriptors=Descriptors(specs, catalog, estimator.node),
        estimator=estimator,
        downloads=Downloads(settings.models_dir, arrived=catalog.refresh),
        media_pool=media_pool,
        lock=lock,
    )


def _allowed_roots(settings: Settings) -> tuple[Path, ...]:
    return tuple(root.resolve() for root in settings.allowed_roots)


def disk_free(path: Path) -> dict[str, Any]:
    """Free and total bytes of the disk that holds `path`."""
    import shutil

    usage = shutil.disk_usage(path)
    return {"freeBytes": usage.free, "totalBytes": usage.total}

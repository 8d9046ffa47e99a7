"""Bringing a run database to the newest schema: explicit, at start, after a backup."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from inline_core.errors import Conflict

_log = structlog.get_logger(__name__)


def migrate(engine: Engine, path: Path) -> None:
    """Migrate the database at `path` in one exclusive transaction.

    A database with content is copied to `<name>.backup-<revision>` first (SQLite backup API).
    Raises: Conflict if the file was written by a newer release.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    head = scripts.get_current_head()
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    if current == head:
        return
    known = {script.revision for script in scripts.walk_revisions()}
    if current is not None and current not in known:
        message = (
            f"The database {path.name} has schema {current}, which this release does not know: "
            "it was written by a newer one. Update Inline Core, or use another --data-dir."
        )
        raise Conflict(message)
    if current is not None:
        _back_up(path, current)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    _log.info("database migrated", database=path.name, before=current, after=head)


def _back_up(path: Path, revision: str) -> None:
    target = path.with_name(f"{path.name}.backup-{revision}")
    source = sqlite3.connect(path)
    copy = sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        copy.close()
        source.close()
    _log.info("database backed up", backup=target.name)

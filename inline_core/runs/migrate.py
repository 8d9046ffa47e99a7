"""Bringing a run database to the newest schema: explicit, at start, after a backup."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import structlog
from sqlalchemy import Engine, inspect, text

from inline_core.errors import Conflict

HEAD = "0003"
"""The newest revision in `migrations/versions`; a test compares them.

Known without alembic, so that a start with nothing to migrate need not import it.
"""

_log = structlog.get_logger(__name__)
_MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(engine: Engine, path: Path) -> None:
    """Migrate the database at `path` in one exclusive transaction.

    A database with content is copied to `<name>.backup-<revision>` first (SQLite backup API).
    Raises: Conflict if the file was written by a newer release.
    """
    current = _current_revision(engine)
    if current == HEAD:
        return
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
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
    _log.info("database migrated", database=path.name, before=current, after=HEAD)


def _current_revision(engine: Engine) -> str | None:
    """What alembic wrote into the file; None for a fresh one."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version"))
        revision = found.scalar_one_or_none()
        return None if revision is None else str(revision)


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

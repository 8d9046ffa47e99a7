"""Migrated files equal fresh ones; newer files are refused; content is backed up."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from inline_core.errors import Conflict
from inline_core.runs import migrate as module
from inline_core.runs.database import Database
from inline_core.runs.queries import Queries
from inline_core.runs.tables import metadata


def schema(path: Path) -> list[tuple[str, str]]:
    """Columns and indexes of every table, in a comparable form."""
    found: list[tuple[str, str]] = []
    with sqlite3.connect(path) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        for (name,) in names:
            if name in {"alembic_version", "sqlite_sequence"}:
                continue
            columns = database.execute(f"PRAGMA table_info({name})").fetchall()
            found += [(name, str(column[1:])) for column in columns]
            for index in database.execute(f"PRAGMA index_list({name})").fetchall():
                keys = database.execute(f"PRAGMA index_info('{index[1]}')").fetchall()
                found.append((name, f"index {[key[2] for key in keys]} unique={index[2]}"))
            for key in database.execute(f"PRAGMA foreign_key_list({name})").fetchall():
                found.append((name, f"references {key[2:7]}"))
    return sorted(found)


def test_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == module.HEAD


def test_a_migrated_file_equals_the_tables(tmp_path: Path) -> None:
    database = Database(tmp_path / "migrated.db")
    database.open()
    database.close()
    engine = create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    metadata.create_all(engine)
    engine.dispose()
    assert schema(tmp_path / "migrated.db") == schema(tmp_path / "fresh.db")


def at_revision(path: Path, revision: str) -> None:
    """A file as the release with this schema left it."""
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).parent / "migrations"))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


RELEASED = ["0001"]


@pytest.mark.parametrize("revision", RELEASED)
def test_a_file_of_every_released_schema_becomes_a_fresh_one(tmp_path: Path, revision: str) -> None:
    path = tmp_path / "old.db"
    at_revision(path, revision)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO takes (id, run_id, node_id, kind, port, extension, sha256, size_bytes,"
            " width, height, params, provenance, created_at_ms) VALUES ('take_1', 'run_1', 'a',"
            " 'image', 'image', 'png', ?, 7, 8, 9, '{\"seed\": 3}', '{}', 5)",
            ("0" * 64,),
        )
    connection.close()
    database = Database(path)
    database.open()
    take = Queries(database).take("take_1")
    database.close()
    engine = create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    metadata.create_all(engine)
    engine.dispose()
    assert schema(path) == schema(tmp_path / "fresh.db")
    assert (take.width, take.params, take.created_at_ms) == (8, {"seed": 3}, 5)
    assert (take.fps, take.sample_rate_hz, take.has_sound, take.poster) == (None,) * 4
    assert (tmp_path / f"old.db.backup-{revision}").stat().st_size > 0


def test_a_newer_file_is_refused_and_an_older_one_backed_up(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    database = Database(path)
    database.open()
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    newer = Database(path)
    with pytest.raises(Conflict, match="newer"):
        newer.open()
    newer.close()
    module._back_up(path, "9999")
    assert (tmp_path / "runs.db.backup-9999").stat().st_size > 0

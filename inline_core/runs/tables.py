"""The tables of the run database, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("client_run_id", String, unique=True),
    Column("status", String, nullable=False),
    Column("target", String, nullable=False),
    Column("graph", JSON, nullable=False),
    Column("graph_hash", String, nullable=False),
    Column("node_order", JSON, nullable=False),
    Column("params", JSON, nullable=False),
    Column("seeds", JSON, nullable=False),
    Column("meta", JSON, nullable=False),
    Column("warnings", JSON, nullable=False),
    Column("force", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("nodes_complete", Integer, nullable=False),
    Column("retry_of", String),
    Column("error_code", String),
    Column("error_message", Text),
    Column("error_node_id", String),
    Column("error_details", JSON),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("finished_at_ms", BigInteger),
    Column("targets", JSON(none_as_null=True)),
    Index("ix_runs_queue", "status", "priority", "position"),
    Index("ix_runs_position", "position"),
    Index("ix_runs_finished", "finished_at_ms"),
    Index("ix_runs_created", "created_at_ms", "id"),
)

run_tags = Table(
    "run_tags",
    metadata,
    Column("run_id", String, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", String, primary_key=True),
    Index("ix_run_tags_tag", "tag"),
)

run_nodes = Table(
    "run_nodes",
    metadata,
    Column("run_id", String, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("node_id", String, primary_key=True),
    Column("state", String, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("finished_at_ms", BigInteger),
)

run_events = Table(
    "run_events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("type", String, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Index("ix_run_events_run", "run_id", "seq"),
    sqlite_autoincrement=True,
)

takes = Table(
    "takes",
    metadata,
    Column("id", String, primary_key=True),
    Column("run_id", String, nullable=False),
    Column("node_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("port", String, nullable=False),
    Column("extension", String, nullable=False),
    Column("sha256", String, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("width", Integer),
    Column("height", Integer),
    Column("duration_s", Float),
    Column("params", JSON, nullable=False),
    Column("provenance", JSON, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("deleted_at_ms", BigInteger),
    Column("fps", Float),
    Column("sample_rate_hz", Integer),
    Column("has_sound", Integer),
    Column("poster", String),
    Index("ix_takes_sha256", "sha256"),
    Index("ix_takes_poster", "poster"),
    Index("ix_takes_created", "created_at_ms", "id"),
    Index("ix_takes_run", "run_id"),
)

run_takes = Table(
    "run_takes",
    metadata,
    Column("run_id", String, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("take_id", String, ForeignKey("takes.id"), primary_key=True),
    Column("node_id", String, nullable=False),
    Column("position", Integer, nullable=False),
    Index("ix_run_takes_take", "take_id"),
)

assets = Table(
    "assets",
    metadata,
    Column("id", String, primary_key=True),
    Column("sha256", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("media_type", String, nullable=False),
    Column("extension", String, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("width", Integer),
    Column("height", Integer),
    Column("duration_s", Float),
    Column("name", String),
    Column("created_at_ms", BigInteger, nullable=False),
)

node_cache = Table(
    "node_cache",
    metadata,
    Column("fingerprint", String, primary_key=True),
    Column("take_ids", JSON, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

server_state = Table(
    "server_state",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", JSON, nullable=False),
)

"""First schema: runs with their graph, nodes, events, takes, assets, cache."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table of the first release."""
    _create_runs()
    _create_run_details()
    _create_takes()
    _create_rest()


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("client_run_id", sa.String, unique=True),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("graph", sa.JSON, nullable=False),
        sa.Column("graph_hash", sa.String, nullable=False),
        sa.Column("node_order", sa.JSON, nullable=False),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("seeds", sa.JSON, nullable=False),
        sa.Column("meta", sa.JSON, nullable=False),
        sa.Column("warnings", sa.JSON, nullable=False),
        sa.Column("force", sa.Integer, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("node_count", sa.Integer, nullable=False),
        sa.Column("nodes_complete", sa.Integer, nullable=False),
        sa.Column("retry_of", sa.String),
        sa.Column("error_code", sa.String),
        sa.Column("error_message", sa.Text),
        sa.Column("error_node_id", sa.String),
        sa.Column("error_details", sa.JSON),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("started_at_ms", sa.BigInteger),
        sa.Column("finished_at_ms", sa.BigInteger),
    )
    op.create_index("ix_runs_queue", "runs", ["status", "priority", "position"])
    op.create_index("ix_runs_position", "runs", ["position"])
    op.create_index("ix_runs_finished", "runs", ["finished_at_ms"])
    op.create_index("ix_runs_created", "runs", ["created_at_ms", "id"])


def _create_run_details() -> None:
    op.create_table(
        "run_tags",
        sa.Column(
            "run_id", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("tag", sa.String, primary_key=True),
    )
    op.create_index("ix_run_tags_tag", "run_tags", ["tag"])
    op.create_table(
        "run_nodes",
        sa.Column(
            "run_id", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("node_id", sa.String, primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("started_at_ms", sa.BigInteger),
        sa.Column("finished_at_ms", sa.BigInteger),
    )
    op.create_table(
        "run_events",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column(
            "run_id", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_run_events_run", "run_events", ["run_id", "seq"])


def _create_takes() -> None:
    op.create_table(
        "takes",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("node_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("port", sa.String, nullable=False),
        sa.Column("extension", sa.String, nullable=False),
        sa.Column("sha256", sa.String, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("width", sa.Integer),
        sa.Column("height", sa.Integer),
        sa.Column("duration_s", sa.Float),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("provenance", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("deleted_at_ms", sa.BigInteger),
    )
    op.create_index("ix_takes_sha256", "takes", ["sha256"])
    op.create_index("ix_takes_created", "takes", ["created_at_ms", "id"])
    op.create_index("ix_takes_run", "takes", ["run_id"])
    op.create_table(
        "run_takes",
        sa.Column(
            "run_id", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("take_id", sa.String, sa.ForeignKey("takes.id"), primary_key=True),
        sa.Column("node_id", sa.String, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
    )
    op.create_index("ix_run_takes_take", "run_takes", ["take_id"])


def _create_rest() -> None:
    op.create_table(
        "assets",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("sha256", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("media_type", sa.String, nullable=False),
        sa.Column("extension", sa.String, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("width", sa.Integer),
        sa.Column("height", sa.Integer),
        sa.Column("duration_s", sa.Float),
        sa.Column("name", sa.String),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "node_cache",
        sa.Column("fingerprint", sa.String, primary_key=True),
        sa.Column("take_ids", sa.JSON, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "server_state",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
    )

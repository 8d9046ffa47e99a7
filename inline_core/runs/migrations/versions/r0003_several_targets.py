"""Runs with several targets.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the list of targets; runs from before have the one in `target`."""
    op.add_column("runs", sa.Column("targets", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    """Drop the column; of several targets only the first is left."""
    with op.batch_alter_table("runs") as batch:
        batch.drop_column("targets")

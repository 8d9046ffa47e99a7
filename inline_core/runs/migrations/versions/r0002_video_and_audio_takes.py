"""Facts of video and audio takes: frame rate, sample rate, sound, poster."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; takes of before are pictures, to which none of them applies."""
    op.add_column("takes", sa.Column("fps", sa.Float))
    op.add_column("takes", sa.Column("sample_rate_hz", sa.Integer))
    op.add_column("takes", sa.Column("has_sound", sa.Integer))
    op.add_column("takes", sa.Column("poster", sa.String))
    op.create_index("ix_takes_poster", "takes", ["poster"])

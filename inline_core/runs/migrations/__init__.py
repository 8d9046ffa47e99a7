"""Alembic migrations of the run database."""

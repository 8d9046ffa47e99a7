"""The run database: the only place that speaks SQL."""

"""Jobs, schedules, solvers, batching and backends of denoising."""

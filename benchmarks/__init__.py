"""Speed as ratios against a baseline measured in the same run: `python -m benchmarks --help`."""

"""Each entry of the mapping: a small prompt, and the graph that it becomes."""

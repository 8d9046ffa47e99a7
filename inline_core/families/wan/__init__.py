"""Wan 2.1 and 2.2: videos from text, a first frame, or a first and a last one."""

"""What each ComfyUI node type becomes: one entry a type, one module a subject.

An entry is data (`Direct`) where the node has one of ours that does the same, else a function that
gets a `Step`.  `registry` puts them together.
"""

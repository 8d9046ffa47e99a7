"""A group of processes that makes one picture together: the side of the server."""

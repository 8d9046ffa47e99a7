"""The node vocabulary: typed functions."""

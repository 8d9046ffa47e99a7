"""Takes and the content-addressed files that hold them."""

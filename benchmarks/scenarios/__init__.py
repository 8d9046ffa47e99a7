"""One module a subject; each scenario function gives its results."""

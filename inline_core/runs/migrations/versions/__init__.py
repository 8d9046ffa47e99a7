"""One module for each schema that was released."""

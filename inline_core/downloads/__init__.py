"""Model files from a hub into the models folder, only when somebody asks for them."""

"""The tiny Z-Image demo model: its data, its parts, its training, its export and its checker."""

"""Text encoders: one module for each architecture, whatever model reads their features."""

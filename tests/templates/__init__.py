"""Official ComfyUI templates, imported and run with tiny models of the families they name."""

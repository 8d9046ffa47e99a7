"""The client API of ComfyUI over the same durable runs: other programs' clients work unchanged."""

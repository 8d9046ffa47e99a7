"""The client API of ComfyUI, over a real server."""

"""Upscalers: networks that enlarge pictures, by the architecture their weights show."""

"""FLUX.1 dev, schnell, Kontext, Krea, Fill, Depth and Canny."""

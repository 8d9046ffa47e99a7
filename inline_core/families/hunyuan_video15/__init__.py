"""HunyuanVideo 1.5: videos from text, or from text and a first frame."""

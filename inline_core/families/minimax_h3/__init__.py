"""MiniMax H3: videos with their soundtrack in one pass, from text and keyframes."""

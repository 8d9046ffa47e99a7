"""HTTP, websockets and pages over the engine."""

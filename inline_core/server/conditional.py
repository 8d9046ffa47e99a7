"""Conditional requests: If-None-Match with weak tags, lists and `*` (RFC 9110, 13.1.2)."""

from __future__ import annotations

import re

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def not_modified(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has the representation `etag` already (weak comparison)."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    return etag.removeprefix("W/") in _TAG.findall(if_none_match)

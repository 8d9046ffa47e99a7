"""What servers of tests are forked from: all that they import, torch among it.

torch starts no threads before it computes something.
"""

from __future__ import annotations

import gc

from inline_core.families import modules
from inline_core.families.z_image import components
from inline_core.sampling.backends import inprocess
from inline_core.server import app
from tests.durability import faulty_server

__all__ = ["app", "components", "faulty_server", "inprocess", "modules"]

# Else each server looks through all of it again and again, and copies it so.
gc.freeze()

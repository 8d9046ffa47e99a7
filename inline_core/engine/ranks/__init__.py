"""The processes of a group: each owns one device, and all of them compute each forward pass.

Started by `torchrun` as `python -m inline_core.engine.ranks`.  The last rank leads: it takes jobs
from the server and steps them as a server without a group does; the others follow its orders.
"""

"""How the networks of families are divided over the ranks of a group.

Used in the processes of a group only.  What is divided, and by which backend, is decided by the
device policy (`devices.split`).
"""

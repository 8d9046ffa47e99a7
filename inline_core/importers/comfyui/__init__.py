"""ComfyUI workflows: read from JSON or media files, and flattened to an equivalent API prompt.

`reading` finds the document, `flattening` turns it into a prompt plus a report of all that was
dropped or changed.  Only published facts of the formats are used.
"""

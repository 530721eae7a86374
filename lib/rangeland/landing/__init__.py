"""Takes a plan from its making to its commit, and proves from the table what has landed.

``target`` is what is landed in. ``drafts`` makes plans and ``execution`` carries them out, each
without the other; both use what stands beside these folders.
"""

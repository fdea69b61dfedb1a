"""The phrase index: documents and a model go in, chunks, words and their vectors come out.

Rooms; each imports those after it: ``building``, ``read``, ``search``, ``tables``, ``versions``.
"""

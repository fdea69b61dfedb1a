"""Versions: folders of indexes, what DVC and an object store have, and what is switched on."""

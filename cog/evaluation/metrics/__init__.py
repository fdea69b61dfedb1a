"""Metrics: texts, segments or features go in, numbers come out; nothing is read or written."""

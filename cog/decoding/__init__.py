"""Decoding: a prefix, a model and an index go in, cited text comes out."""

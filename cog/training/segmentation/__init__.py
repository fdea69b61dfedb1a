"""Segmentation: documents go in; which phrases of others they can be copied from comes out."""

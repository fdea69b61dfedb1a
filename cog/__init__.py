"""CoG, the Copy-Generator: text written by copying phrases out of a switchable text collection."""

__version__ = "0.1.0"

"""CoG, the Copy-Generator: text written by copying phrases out of a text collection that can be switched."""

__version__ = "0.1.0"

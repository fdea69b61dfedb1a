"""Checking a project: what is wrong comes out, with what mends it; nothing is written."""

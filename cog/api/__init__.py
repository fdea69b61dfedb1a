"""The Python interface: a folder goes in, a project with corpora and generators comes out."""

"""Training: documents and base models go in, a model folder comes out."""

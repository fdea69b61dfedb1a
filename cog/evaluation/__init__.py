"""Evaluation: prompts and a system go in, scores under one pinned protocol come out."""

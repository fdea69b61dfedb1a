"""Baselines: the systems CoG is compared with, each with its own cache, batches and settings."""

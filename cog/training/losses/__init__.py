"""Losses: hidden states, word vectors and labels go in, losses per query come out."""

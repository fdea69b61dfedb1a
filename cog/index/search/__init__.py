"""Search: chunks by their vectors, places by the tokens before them."""

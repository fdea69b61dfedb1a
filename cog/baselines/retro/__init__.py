"""RETRO: chunked cross-attention over retrieved neighbours, fitted to a frozen prefix encoder."""

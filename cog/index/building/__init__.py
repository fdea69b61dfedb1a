"""Building: documents become windows, rows and tables; what was encoded before is taken over."""

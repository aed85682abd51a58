"""Tables as text and as HTML."""

"""Arrays in, estimates out: nothing in this room knows of labels or files."""

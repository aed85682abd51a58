"""Sources of scores: one module per source, each a function returning the scores ``Dataset``."""

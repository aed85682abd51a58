"""What holds draws: both generations of ArviZ, samplers' own objects, files, labels."""

"""xarray in, xarray out: from data to the engine and back."""

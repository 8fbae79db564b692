"""The Spark host: physical plans as DataFrame programs, kernels behind a packed exchange."""

"""What all generators of kernel source share: how it is written, and passes over it."""

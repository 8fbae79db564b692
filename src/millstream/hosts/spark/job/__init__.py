"""One Spark job for a set of queries: each source is read once, each level of kernels is one operator."""

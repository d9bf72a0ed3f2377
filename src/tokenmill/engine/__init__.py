"""A function over many items, in threads or on a Ray cluster, with the results in the order of the items."""

"""What a model and its parallelism turn into: the weight inventory and the work of one step."""

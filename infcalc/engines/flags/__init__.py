"""The options of serving engines as data: what each means there, its default, and the versions that have it."""

"""Search for what to rent: candidates, odds, replicas, fronts and pools. It knows neither clocks nor catalogs."""

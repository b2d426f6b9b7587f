"""From measurements to the few factors that they determine: a robust fit, what it can tell, errors on held-out runs."""

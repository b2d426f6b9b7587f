"""A server under load in its steady state: batch, closed loop, open loop, finite runs, and the front end before it."""

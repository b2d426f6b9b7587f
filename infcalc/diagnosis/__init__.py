"""What is wrong with a server: rules as data over named signals, and what evidence says of each signal."""

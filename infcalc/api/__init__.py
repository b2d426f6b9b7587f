"""One function per question; what the command line calls is what a library user calls."""

"""What a cluster looks like now, as figures: for the command line, reports and servers."""

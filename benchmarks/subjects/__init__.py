"""Who is measured: each module states one problem to one balancer and runs it."""

"""Many runs: jobs, the engines that run them, their locks and progress."""

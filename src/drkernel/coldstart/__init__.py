"""The cold start: from generated tasks to judged trajectories, and from those to a policy trained from scratch."""

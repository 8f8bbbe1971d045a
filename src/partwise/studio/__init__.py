"""One local web app: the course, the explorer, the ladder, the runs and the playground."""

"""Image annotation: tasks, assignment of images to annotators, the web page, and analysis of the answers."""

"""Models: a name becomes a network whose stem suits the size of the images."""

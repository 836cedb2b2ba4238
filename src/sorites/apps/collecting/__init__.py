"""Images collected from image searches, with their licences: the only room that searches the web."""

"""A Judge for other machines: a server around it that speaks HTTP and JSON, and a client of one or several servers."""

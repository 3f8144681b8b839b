"""The answers are for the judge; they are not imported, for doctests or otherwise."""

collect_ignore_glob = ["answers/*"]

"""The submissions are for the judge: pytest does not import them, for doctests or otherwise."""

collect_ignore_glob = ["submissions/*"]

"""A sweep at a glance: where its runs stand, the table over seeds, the curves."""

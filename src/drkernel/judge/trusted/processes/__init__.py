"""The processes beside the one that judges: workers, the zygote, and runners as their client sees them."""

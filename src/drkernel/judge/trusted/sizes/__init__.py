"""At which sizes a task runs beside the published ones, and what it takes there."""

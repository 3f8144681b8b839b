"""What both the trusted and the untrusted side load, so it imports neither: frames, shared memory, the sandbox, and
what both do alike (construct models, record operators).

Whoever parses here what came from the other side treats it as hostile.
"""

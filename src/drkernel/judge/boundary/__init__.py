"""What both the trusted and the untrusted side import, so it imports neither: messages, shared memory, the sandbox, and
what both do alike (construct models, record operators).

Whoever parses here what came from the other side treats it as hostile.
"""

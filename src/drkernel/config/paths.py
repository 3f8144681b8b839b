"""Where this repository is, and what is looked up in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
CONF = REPOSITORY / "conf"


def located(config: Any) -> Any:
    """The config with a policy folder and a template of the repository found from any working directory."""
    for key in ("path", "template"):
        given = getattr(config.policy, key)
        if given and not Path(given).exists() and (REPOSITORY / given).exists():
            setattr(config.policy, key, str(REPOSITORY / given))
    return config

"""What a user did wrong is one clear line: `one_line_errors` wraps an entry point. An unknown key, type or variant is
named with the nearest valid one."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from drkernel.config.keys import ADDED, OF_PROGRAM, valid_keys
from drkernel.config.nearest import nearest
from drkernel.config.paths import CONF
from drkernel.types import DrKernelError

FIRST_RANK_PRINTS_S = 2.0
"""How long other ranks wait before they end: a launcher kills all ranks once one has ended."""


@contextlib.contextmanager
def one_line_errors(kind: type) -> Iterator[None]:
    """The user's errors become one line on stderr and exit code 2. What has written nothing leaves no folder.

    Wraps the Hydra entry point, which may fail to compose a `kind`, and its body, before Hydra adds lines of its own.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        yield
    except DrKernelError as error:
        if error.on_every_rank and os.environ.get("RANK", "0") != "0":
            time.sleep(FIRST_RANK_PRINTS_S)
            sys.exit(2)
        message = str(error)
    except (HydraException, OmegaConfBaseException) as error:
        message = explain(sys.argv[1:], error, kind)
    except AssertionError as error:  # omegaconf's, for an option of a group that is null
        if "Unexpected type for root: NoneType" not in str(error) or not (message := off(sys.argv[1:], kind)):
            raise
    except ValueError as error:
        if not str(error).startswith("Config group override"):  # Hydra's own, for algo=3
            raise
        message = f"config: {' '.join(sys.argv[1:])}: {error}"
    except OSError as error:
        if not _is_hydras_folder(error):
            raise
        message = f"config: run_dir: {error}; expected hydra.run.dir to be a folder that can be written"
    else:
        return
    finally:
        _remove_if_empty()
    print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def _remove_if_empty() -> None:
    """Hydra makes the folder of a run before the program's own first line."""
    if HydraConfig.initialized() and os.environ.get("RANK", "0") == "0":
        with contextlib.suppress(OSError, MissingMandatoryValue):  # it holds files; there is none
            os.rmdir(HydraConfig.get().runtime.output_dir)


def _is_hydras_folder(error: OSError) -> bool:
    """Whether Hydra could not make the folder of a run, which it does before the program's own first line."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return "run_job" in names and names[names.index("run_job") + 1] == "mkdir"


def explain(overrides: list[str], error: Exception, kind: type) -> str:
    """One line for an error of Hydra's own composition: names the override and the nearest valid key.

    >>> from dataclasses import make_dataclass
    >>> Algo = make_dataclass("Algo", [("gamma", float)])
    >>> Run = make_dataclass("Run", [("algo", Algo)])
    >>> explain(["algo.gama=0"], Exception("Could not override 'algo.gama'."), Run)
    "config: unknown key 'algo.gama'; did you mean 'algo.gamma'?"
    """
    if own := _of_a_resolver(error):
        return own
    keys = valid_keys(kind)
    for override in overrides:
        key = override.split("=", 1)[0].lstrip("~").split("@")[0]
        if key.startswith(("+", "hydra")):  # +sweep=x is a group; an unknown key is left to `resolve`
            continue
        if key in ADDED:
            return f"config: {override} is added to a run; expected +{override}"
        group = key.partition(".")[0]
        if group not in keys and group in OF_PROGRAM:
            return f"config: {override} is for {OF_PROGRAM[group]}"
        if key and "=" in override and key not in keys:
            return f"config: unknown key {key!r}{nearest(key, keys)}"
    if isinstance(error, OverrideParseException):
        key, equals, value = error.override.partition("=")
        if not equals:
            return f"config: {key} has no value; expected {key}=VALUE"
        quoted = "['first','second']" if value.startswith("[") else f"'{value}'"
        return f'config: Hydra cannot read {error.override}; its value may need quotes: "{key}={quoted}"'
    found = re.search(
        r"Could not find '([\w/]+)/([^'/]+)'[^:]*Available options[^:]*:\s*(.*?)(?:Config search|$)", str(error), re.S
    )
    if found:
        group, variant, options = found[1], found[2], found[3].split()
        return f"config: {group}={variant} is none of {', '.join(options)}{nearest(variant, options)}"
    if found := re.search(
        r"Could not (?:find|load) '(\w+)/([^']+)'", str(error)
    ):  # one of a list, for which Hydra names none
        options = sorted(path.stem for path in (CONF / found[1]).glob("*.yaml"))
        return f"config: {found[1]}={found[2]} is none of {', '.join(options)}{nearest(found[2], options)}"
    cause = str(error.__cause__ or "").partition("\n")[0]
    return f"config: {error}{cause and f': {cause}'}"


def _of_a_resolver(error: BaseException | None) -> str:
    """What a resolver of ours refused, which omegaconf wraps; or nothing."""
    while error and not isinstance(error, DrKernelError):
        error = error.__context__
    return str(error or "")


def off(overrides: list[str], kind: type) -> str:
    """One line for an override of a filter that is not on, or nothing where there is none.

    >>> from dataclasses import make_dataclass
    >>> Mrs = make_dataclass("Mrs", [("upper", float)])
    >>> Filters = make_dataclass("Filters", [("mrs", Mrs)])
    >>> print(off(["filters.mrs.upper=2"], make_dataclass("Run", [("filters", Filters)])))
    config: filters.mrs.upper=2 does nothing: filters.mrs is off; expected filters=[zero_variance,mrs]
    """
    chosen = next((each.partition("=")[2] for each in overrides if each.startswith("filters=")), "zero_variance")
    on = [name for name in re.findall(r"\w+", chosen) if name != "none"]
    for override in overrides:
        group, _, name = override.partition("=")[0].rpartition(".")
        parent, _, filter_name = group.rpartition(".")
        if parent != "filters" or f"{group}.{name}" not in valid_keys(kind) or filter_name in on:
            continue
        wanted = ",".join([*on, filter_name])
        return f"config: {override} does nothing: {group} is off; expected filters=[{wanted}]"
    return ""

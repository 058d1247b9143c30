"""A planted secret, and all the places where one could come to light."""

import logging
import traceback
from pathlib import Path

import pytest

SECRET = "cGxhbnRlZC1odW50ZXIy"
"""Planted user-data, base64."""

OURS = str(Path("src") / "fleet_manager")


def everything(caplog: pytest.LogCaptureFixture) -> None:
    """Capture all that is logged, of the libraries too."""
    caplog.set_level(logging.DEBUG)
    for name in ("keystoneauth", "openstack", "urllib3"):
        caplog.set_level(logging.DEBUG, logger=name)


def leaks(error: BaseException) -> str:
    """Return all that a log, a page or an error reporter could show of an error, locals of our frames included."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if OURS in frame.f_code.co_filename]
    return "\n".join(repr(frame.f_locals) for frame in frames) + _chain(error)


def _chain(error: BaseException) -> str:
    shown = [repr(error), str(error), repr(error.args), repr(vars(error)), "".join(traceback.format_exception(error))]
    chained: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and (seen := seen.__cause__ or seen.__context__) is not None:
        chained.append(seen)
        shown += [repr(seen), repr(vars(seen))]
    return "\n".join(shown)

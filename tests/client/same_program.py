"""Checks that hold on a folder and on a server."""

from __future__ import annotations

import pytest

from fourfold import errors


def refused(error, message, call):
    """Check the class and the message of an error, which name the same thing everywhere."""
    with pytest.raises(errors.FourfoldError) as caught:
        call()
    assert (type(caught.value), caught.value.message) == (error, message)
    assert caught.value.hint

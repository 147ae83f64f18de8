"""Checks that hold on a folder and on a server."""

from __future__ import annotations

import pytest

from fourfold import errors


def take(follower, count):
    """Return the next items of a follower, and expect no more of them.

    The long limit is only there to end a test that hangs: the items are stored.
    """
    items = [follower.next(30) for _ in range(count)]
    assert follower.next(0.05) is None
    return items


def refused(error, message, call):
    """Check the class and the message of an error, which name the same thing everywhere."""
    with pytest.raises(errors.FourfoldError) as caught:
        call()
    assert (type(caught.value), caught.value.message) == (error, message)
    assert caught.value.hint

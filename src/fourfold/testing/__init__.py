"""Test support for authors of backends: contract suites, strategies and fault injection.

The modules need pytest and Hypothesis (`pip install 'fourfold[dev]'`); nothing else in the package
imports them.
"""

from __future__ import annotations

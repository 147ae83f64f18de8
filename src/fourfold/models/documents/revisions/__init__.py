"""The history `revisions`: a log of operations in the order of their commits."""

from __future__ import annotations

"""Helpers that several packages of tests share: crashes, faulty disks, models, an S3 server."""

from __future__ import annotations

"""Touch: wait for changes of certain rows of a state stream.

Names are imported on first use: a client of a server needs the records, but no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fourfold._lazy import exports

if TYPE_CHECKING:
    from fourfold.models.streams.touch.records import (
        ActiveTemplate,
        Encoding,
        EntityKey,
        Key,
        Meta,
        RowKey,
        Template,
        TemplateKey,
        WaitResult,
    )
    from fourfold.models.streams.touch.touches import Touches
else:
    _HERE = "fourfold.models.streams.touch"
    __getattr__, __dir__ = exports(
        __name__,
        {
            "ActiveTemplate": f"{_HERE}.records",
            "Encoding": f"{_HERE}.records",
            "EntityKey": f"{_HERE}.records",
            "Key": f"{_HERE}.records",
            "Meta": f"{_HERE}.records",
            "RowKey": f"{_HERE}.records",
            "TemplateKey": f"{_HERE}.records",
            "Template": f"{_HERE}.records",
            "WaitResult": f"{_HERE}.records",
            "Touches": f"{_HERE}.touches",
        },
    )

__all__ = [
    "ActiveTemplate",
    "Encoding",
    "EntityKey",
    "Key",
    "Meta",
    "RowKey",
    "Template",
    "TemplateKey",
    "Touches",
    "WaitResult",
]

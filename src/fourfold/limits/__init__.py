"""Every limit and default of Fourfold, in one package, with its unit in its name.

A number that bounds memory, time or size belongs here and nowhere else, so that a reader can see at
one glance what the system will and will not do. One file for each part; `limits.NAME` finds any.
"""

from __future__ import annotations

from fourfold.limits.archive import *
from fourfold.limits.content import *
from fourfold.limits.documents import *
from fourfold.limits.graphs import *
from fourfold.limits.kernel import *
from fourfold.limits.pipeline import *
from fourfold.limits.schemas import *
from fourfold.limits.server import *
from fourfold.limits.sessions import *
from fourfold.limits.streams import *
from fourfold.limits.touch import *
from fourfold.limits.units import *

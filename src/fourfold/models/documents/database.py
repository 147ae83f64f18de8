"""What the files of both histories have in common: how they are opened, and how they count."""

from __future__ import annotations

from fourfold.kernel import Profile, Queries, Sequence, profiles
from fourfold.models.documents import fold


def profile(name: str) -> Profile:
    """The name tells the kernel, and every tool that opens the file, which of the two logs it
    holds; the rules, whether this Fourfold reads out of that log what its writer meant.
    """
    return profiles.DOCUMENTS.with_(name=name, rules=(("patch_semantics", fold.SEMANTICS),))


def counter(sql: Queries) -> Sequence:
    """The seqs of a space. The log itself is the counter; the kernel's row is only a floor for
    restores.
    """
    return Sequence(
        "seq",
        read=sql.last_seq,
        claim=sql.claim_seq,
        advance=sql.lift_seq,
        seed=sql.seed_seq,
        used=sql.greatest_seq,
    )

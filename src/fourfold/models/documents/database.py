"""The database of a space: profile, migrations and counter, for both kinds of history."""

from __future__ import annotations

from fourfold.kernel import Migration, Profile, Queries, Sequence, load_migrations, profiles
from fourfold.models.documents import fold


def profile(name: str) -> Profile:
    """Return the profile of a kind of history.

    The name is stored in each file and identifies its log; the rules are checked when it is opened.
    """
    return profiles.DOCUMENTS.with_(name=name, rules=(("patch_semantics", fold.SEMANTICS),))


def migrations(package: str) -> tuple[Migration, ...]:
    """Return the migrations of a kind of history: its own, and those that both kinds share."""
    return load_migrations(
        package, "fourfold.models.documents.gc", "fourfold.models.documents.indexes"
    )


def counter(sql: Queries) -> Sequence:
    """Return the counter of the seqs of a space.

    The log itself is the counter; the row of the kernel is only a floor for restores.
    """
    return Sequence(
        "seq",
        read=sql.last_seq,
        claim=sql.claim_seq,
        advance=sql.lift_seq,
        seed=sql.seed_seq,
        used=sql.greatest_seq,
    )

-- Values of attributes and ratings, derived from the tables of all apps: the value of each now, and what it was before.
-- `kind` is 2 for an attribute and 8 for a rating; `target_kind` is 0 for a parent and 1 for an attribute. `value` is a
-- number, the beginning of a text, an empty blob for JSON, and x'00' for all others. The migration fills both tables.
CREATE TABLE value_now (
    app_id      INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    target_kind INTEGER NOT NULL,
    target      INTEGER NOT NULL,
    type_id     INTEGER NOT NULL,
    object_id   INTEGER NOT NULL,
    value       ANY NOT NULL,
    from_seq    INTEGER NOT NULL,
    PRIMARY KEY (app_id, kind, target_kind, target, type_id, object_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX value_now_value ON value_now (app_id, kind, type_id, value, object_id, target_kind, target, from_seq);

-- It had the value from `from_seq` until before `to_seq`.
CREATE TABLE value_past (
    app_id      INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    target_kind INTEGER NOT NULL,
    target      INTEGER NOT NULL,
    type_id     INTEGER NOT NULL,
    object_id   INTEGER NOT NULL,
    value       ANY NOT NULL,
    from_seq    INTEGER NOT NULL,
    to_seq      INTEGER NOT NULL,
    PRIMARY KEY (app_id, kind, type_id, value, object_id, to_seq)
) STRICT, WITHOUT ROWID;

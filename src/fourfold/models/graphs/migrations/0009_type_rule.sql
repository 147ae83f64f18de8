-- Rules of types.

-- What objects of a type must meet, as JSON.
CREATE TABLE type_rule (
    app_id  INTEGER NOT NULL,
    type_id INTEGER NOT NULL,
    rule    TEXT NOT NULL,
    PRIMARY KEY (app_id, type_id)
) WITHOUT ROWID;

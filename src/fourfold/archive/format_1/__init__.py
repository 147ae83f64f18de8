"""Archives of format 1, which Fourfold wrote before archive tables: they are read, never written.

    manifests/<hash of the name>.json             the newest publications of a database
    databases/<hash>/pages/...json                older ones
    databases/<hash>/<table>/...parquet           rows, of one publication or of many
    points/list.json                              the newest points, and references to pages
    points/<id>.json                              contents of a point
    points/pages/...json                          older parts of the list
    points/packs/...json                          the same, including contents of points
    blobs/<2 digits>/<64 digits>.blob             large values, as in archive tables

A publication extends its `previous` one: rows to put, keys to delete, small tables as a whole. A
take-over continued from an older publication than the newest; those in between are in the
manifest's pages, and can be restored. The rows of many small publications may be in one object, a
*pack*: each publication refers to its part.
"""

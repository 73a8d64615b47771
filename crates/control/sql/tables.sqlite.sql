-- All tables but those that SQLite makes for itself.
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*'

-- All tables of the current schema, except those of extensions.
SELECT CAST(relname AS text)
FROM pg_class c
WHERE relnamespace = to_regnamespace(CAST(current_schema() AS text))
    AND relkind IN ('r', 'p')
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')

SELECT n.nspname::text, c.relname::text, a.attname::text
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped
  AND lower(c.relname::text) = lower($1)
  AND CASE WHEN $2 = '' THEN pg_table_is_visible(c.oid) ELSE lower(n.nspname::text) = lower($2) END
ORDER BY c.relname::text = $1 DESC, c.relname::text = lower($1) DESC, c.oid, a.attnum

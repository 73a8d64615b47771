SELECT 'main', m.name, p.name
FROM sqlite_schema AS m
JOIN pragma_table_xinfo(m.name) AS p
WHERE m.type IN ('table', 'view') AND lower(m.name) = lower($1) AND lower($2) IN ('', 'main')
ORDER BY m.name = $1 DESC, m.name, p.cid

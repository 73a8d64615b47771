-- One statement, so that entries and version are read from the same snapshot.
SELECT 'head', '', '', coalesce(max(number), 0) FROM rule_version
UNION ALL SELECT kind, id, value, version FROM rule_entry

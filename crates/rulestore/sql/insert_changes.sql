INSERT INTO rule_change (version, sequence, kind, id, before, after)
SELECT CAST(e->>0 AS bigint), CAST(e->>1 AS bigint), e->>2, e->>3, e->>4, e->>5
FROM {rows}

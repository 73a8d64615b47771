//! The node table: each node writes its own row, and removes rows of nodes not seen for long.

use tidegate_core::time::Timestamp;

use super::RepositoryError;
use super::database::{SqlDatabase, SqlParam, from_stored, to_stored};
use crate::node::FleetNode;

/// Writes a node's row and removes nodes last seen before `forget`.
pub(super) async fn upsert_node(
    database: &SqlDatabase,
    node: &FleetNode,
    forget: Timestamp,
) -> Result<(), RepositoryError> {
    let (version, seen) = (to_stored(node.version), to_stored(node.last_seen.as_micros()));
    let row = [SqlParam::Text(&node.name), SqlParam::Number(version), SqlParam::Number(seen)];
    let mut session = database.writer().await?;
    session.execute(include_str!("../../sql/record_heartbeat.sql"), &row).await?;
    let old = "DELETE FROM rule_node WHERE seen_at < $1";
    session.execute(old, &[SqlParam::Number(to_stored(forget.as_micros()))]).await?;
    Ok(())
}

/// Removes a node's row.
pub(super) async fn delete_node(database: &SqlDatabase, name: &str) -> Result<(), RepositoryError> {
    let sql = "DELETE FROM rule_node WHERE name = $1";
    database.writer().await?.execute(sql, &[SqlParam::Text(name)]).await?;
    Ok(())
}

/// All nodes, by name.
pub(super) async fn fetch_nodes(database: &SqlDatabase) -> Result<Vec<FleetNode>, RepositoryError> {
    let sql = "SELECT name, rules_version, seen_at FROM rule_node ORDER BY name";
    let rows: Vec<(String, i64, i64)> = database.reader().await?.fetch_rows(sql, &[]).await?;
    let node = |(name, version, seen)| FleetNode {
        name,
        version: from_stored(version),
        last_seen: Timestamp::from_micros(from_stored(seen)),
    };
    Ok(rows.into_iter().map(node).collect())
}

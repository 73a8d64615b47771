//! The nodes on record: each writes its own row, and takes out those that nobody has heard of for long.

use tidegate_core::time::Timestamp;

use super::Refused;
use super::database::{Database, Value, stored, told};
use crate::node::Node;

/// Writes a node's row; those from before `forget` go.
pub(super) async fn check_in(
    database: &Database,
    node: &Node,
    forget: Timestamp,
) -> Result<(), Refused> {
    let (version, seen) = (stored(node.version), stored(node.seen.as_micros()));
    let row = [Value::Text(&node.name), Value::Number(version), Value::Number(seen)];
    let mut session = database.writer().await?;
    session.run(include_str!("../../sql/check_in.sql"), &row).await?;
    let old = "DELETE FROM rule_node WHERE seen_at < $1";
    session.run(old, &[Value::Number(stored(forget.as_micros()))]).await?;
    Ok(())
}

/// Takes a node's row out.
pub(super) async fn leave(database: &Database, name: &str) -> Result<(), Refused> {
    let sql = "DELETE FROM rule_node WHERE name = $1";
    database.writer().await?.run(sql, &[Value::Text(name)]).await?;
    Ok(())
}

/// All of them, by name.
pub(super) async fn all(database: &Database) -> Result<Vec<Node>, Refused> {
    let sql = "SELECT name, rules_version, seen_at FROM rule_node ORDER BY name";
    let rows: Vec<(String, i64, i64)> = database.reader().await?.rows(sql, &[]).await?;
    let node = |(name, version, seen)| Node {
        name,
        version: told(version),
        seen: Timestamp::from_micros(told(seen)),
    };
    Ok(rows.into_iter().map(node).collect())
}

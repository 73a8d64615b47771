//! The estimate as a table for a terminal.

use std::fmt;

use tidegate_limiter::sizing::HOT_REQUESTS;

use super::case::{Mode, ScaleCase};
use super::estimate::{ModeEstimate, ScaleCheck, ScaleEstimate};

/// A row: its label, and what it shows of a mode.
type Row = (&'static str, fn(&ModeEstimate) -> String);

const ROWS: [Row; 15] = [
    ("requests admitted", |mode| amount(mode.admitted)),
    ("decided without a store", |mode| percent(mode.local / mode.requests)),
    ("store calls/s", |mode| amount(mode.calls.sum())),
    ("  requests decided there", |mode| amount(mode.calls.direct)),
    ("  units lent", |mode| amount(mode.calls.grants)),
    ("  units returned", |mode| amount(mode.calls.returns)),
    ("  counters flushed", |mode| amount(mode.calls.flushes)),
    ("store calls/s, busiest key", |mode| mode.busiest_key.map_or("-".to_owned(), amount)),
    ("messages/s to stores, at most", |mode| amount(mode.messages)),
    ("store calls per 100 requests", |mode| decimal(100.0 * mode.calls.sum() / mode.requests)),
    ("Redis shards, calls shared", |mode| amount(mode.fewest_shards)),
    ("Redis shards, calls single", |mode| amount(mode.most_shards)),
    ("memory of a shard, at most", |mode| bytes(mode.bytes_per_shard)),
    ("counters at a node", |mode| amount(mode.counters_per_node)),
    ("memory of a node for them", |mode| {
        let full = if mode.is_full { "full: " } else { "" };
        format!("{full}{}", bytes(mode.bytes_per_node))
    }),
];

impl fmt::Display for ScaleEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.case)?;
        write_table(f, &self.modes, |at| Mode::ALL[at].name().to_owned())
    }
}

impl fmt::Display for ScaleCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Every node and key for {} s of virtual time:\n", self.seconds)?;
        let modes: Vec<ModeEstimate> = self.pairs.iter().flatten().copied().collect();
        write_table(f, &modes, |at| {
            let how = if at % 2 == 0 { "model" } else { "run" };
            format!("{} {how}", modes[at].mode.name())
        })
    }
}

/// Writes estimates side by side. `heading` gets the index of a column.
fn write_table(
    f: &mut fmt::Formatter<'_>,
    modes: &[ModeEstimate],
    heading: impl Fn(usize) -> String,
) -> fmt::Result {
    write_row(f, "", (0..modes.len()).map(heading))?;
    for (label, show) in ROWS {
        write_row(f, label, modes.iter().map(show))?;
    }
    Ok(())
}

fn write_row(
    f: &mut fmt::Formatter<'_>,
    label: &str,
    cells: impl Iterator<Item = String>,
) -> fmt::Result {
    write!(f, "{label:<32}")?;
    for cell in cells {
        write!(f, "{cell:>16}")?;
    }
    writeln!(f)
}

impl fmt::Display for ScaleCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, nodes_per_key, keys, rate, exponent, limit, ttl, flush, store, .. } =
            self;
        let spread = match nodes_per_key {
            1 => "each key at one node".to_owned(),
            _ if nodes_per_key == nodes => "each key at every node".to_owned(),
            _ => format!("each key at {nodes_per_key} nodes"),
        };
        let keys = amount(*keys as f64);
        writeln!(f, "{nodes} nodes, {keys} keys, {} requests/s, {spread}", amount(*rate))?;
        let spread = match *exponent == 0.0 {
            true => "All keys get equally many requests.".to_owned(),
            false => format!("The k-th busiest key gets requests in proportion to 1/k^{exponent}."),
        };
        writeln!(f, "{spread}")?;
        writeln!(f, "Limit of each key: {limit}. Lease ttl {ttl}, flush {flush}.")?;
        writeln!(
            f,
            "A node leases a counter from {HOT_REQUESTS} requests in one ttl on; it asks for others."
        )?;
        write!(
            f,
            "A Redis core decides {}/s if calls are shared, {}/s if not; {} % of it may be used.",
            amount(store.shared_calls_per_second),
            amount(store.single_calls_per_second),
            store.load_percent
        )
    }
}

/// A number with three digits and a unit.
fn amount(number: f64) -> String {
    let (number, unit) = match number {
        _ if number >= 999.5e6 => (number / 1e9, " G"),
        _ if number >= 999.5e3 => (number / 1e6, " M"),
        _ if number >= 9_999.5 => (number / 1e3, " k"),
        _ => return format!("{number:.0}"),
    };
    match number {
        _ if number >= 99.95 => format!("{number:.0}{unit}"),
        _ if number >= 9.995 => format!("{number:.1}{unit}"),
        _ => format!("{number:.2}{unit}"),
    }
}

fn bytes(number: f64) -> String {
    const MIB: f64 = 1_048_576.0;
    match number {
        _ if number < 1.0 => "none".to_owned(),
        _ if number < MIB => format!("{:.0} KiB", number / 1_024.0),
        _ if number < 1_024.0 * MIB => format!("{:.1} MiB", number / MIB),
        _ => format!("{:.1} GiB", number / (1_024.0 * MIB)),
    }
}

fn decimal(number: f64) -> String {
    if number < 9.995 { format!("{number:.2}") } else { format!("{number:.1}") }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

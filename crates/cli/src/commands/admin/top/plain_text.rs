//! The snapshot as plain text, for pipes and files.

use super::formatting::{
    format_count, format_estimate, format_key_owner, format_latency, format_percent, format_rate,
    format_uptime,
};
use super::snapshot::{QUANTILES, TopSnapshot};
use super::tick_delta::BANDS;
use super::view::ViewState;
use crate::table::{format_columns, format_table};
use tidegate_server::output::{BOLD, escape_unprintable};

/// Renders a snapshot.
pub(super) fn render_text(snapshot: &TopSnapshot) -> String {
    let node = escape_unprintable(&snapshot.tick.process.node);
    let mut text = format!("{BOLD}{node}{BOLD:#}\n{}", format_columns(2, &summary_rows(snapshot)));
    for rows in [rule_rows(snapshot), key_rows(snapshot, "refused"), key_rows(snapshot, "busiest")]
    {
        text.push_str(&format!("\n{}", format_table(0, &rows)));
    }
    text
}

/// The state of the server, one row per item.
fn summary_rows(snapshot: &TopSnapshot) -> Vec<Vec<String>> {
    let (process, source) = (&snapshot.tick.process, &snapshot.tick.rule_source);
    let (version, pid, state) = (&process.version, process.pid, &process.status.status);
    let bands = BANDS.into_iter().zip(snapshot.bands);
    let bands = join_parts(bands.map(|(name, number)| format!("{name} {}", format_rate(number))));
    let took = QUANTILES.into_iter().zip(snapshot.latencies);
    let took = join_parts(took.map(|((name, _), took)| format!("{name} {}", format_latency(took))));
    let (all, total) = (format_rate(snapshot.bands.iter().sum()), format_count(snapshot.total));
    let rows = [
        (
            "server",
            format!(
                "tidegate {version}, process {pid}, {state}, up {}",
                format_uptime(snapshot.uptime_seconds())
            ),
        ),
        (
            "rules",
            format!("version {} of {}, {} rules", source.version, source.database, source.rules),
        ),
        ("store", snapshot.store_summary()),
        ("decisions", format!("{all}/s ({bands}), {total} since the start")),
        ("refused", format_percent(snapshot.refused)),
        ("local", format_percent(snapshot.local)),
        ("latency", took),
    ];
    let nodes = snapshot.nodes.iter().map(|node| ("node", node.describe()));
    let error = snapshot.server_error().map(|error| ("error", error.to_owned()));
    let regions = process.regions.as_ref().map(|regions| ("regions", regions.describe()));
    let rows = rows.into_iter().chain(regions).chain(nodes).chain(error);
    rows.map(|(name, value)| vec![name.to_owned(), escape_unprintable(&value)]).collect()
}

fn join_parts(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn rule_rows(snapshot: &TopSnapshot) -> Vec<Vec<String>> {
    let rules = ViewState::default().visible_rules(snapshot);
    let head = [
        "rule",
        "mode",
        "counted",
        "requests/s",
        "refused/s",
        "refused",
        "used",
        "<10% left",
        "max/window",
    ];
    let of_regions = rules.iter().any(|rule| rule.region_share.is_some());
    let regions = ["share", "borrowed", "lent"].into_iter().filter(|_| of_regions);
    let head = head.into_iter().chain(regions).map(str::to_owned).collect();
    let number = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), format_count);
    let rows = rules.into_iter().map(|rule| {
        let mut row = vec![
            escape_unprintable(&rule.id),
            escape_unprintable(rule.mode_or_disabled()),
            escape_unprintable(&rule.consistency),
            format_rate(rule.requests),
            format_rate(rule.refused),
            format_percent(rule.share),
            format_percent(rule.used),
            format_percent(rule.near_limit),
            number(rule.max_in_window),
        ];
        if of_regions {
            let share = escape_unprintable(rule.region_share.as_deref().unwrap_or("–"));
            row.extend([share, number(rule.borrowed), number(rule.lent)]);
        }
        row
    });
    std::iter::once(head).chain(rows).collect()
}

fn key_rows(snapshot: &TopSnapshot, kind: &str) -> Vec<Vec<String>> {
    let head = vec![kind.to_owned(), "rule".to_owned(), "client".to_owned()];
    let rows = ViewState::default().visible_keys(snapshot, kind).into_iter().map(|key| {
        let times = format_estimate(key.count, key.error, key.spread);
        vec![
            times,
            escape_unprintable(&key.rule),
            format_key_owner(key.client.as_deref(), &key.key),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

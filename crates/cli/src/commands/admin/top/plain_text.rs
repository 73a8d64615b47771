//! The picture of one instant as plain text, for pipes and files.

use super::formatting::{
    format_count, format_estimate, format_key_owner, format_latency, format_percent, format_rate,
    format_uptime,
};
use super::snapshot::{QUANTILES, TopSnapshot};
use super::tick_delta::BANDS;
use super::view::ViewState;
use tidegate_server::output::{BOLD, escape_unprintable, format_columns, format_table};

/// All of it.
pub(super) fn render_text(picture: &TopSnapshot) -> String {
    let node = escape_unprintable(&picture.tick.process.node);
    let mut text = format!("{BOLD}{node}{BOLD:#}\n{}", format_columns(2, &summary_rows(picture)));
    for rows in [rule_rows(picture), key_rows(picture, "refused"), key_rows(picture, "busiest")] {
        text.push_str(&format!("\n{}", format_table(0, &rows)));
    }
    text
}

/// How it is, a line each.
fn summary_rows(picture: &TopSnapshot) -> Vec<Vec<String>> {
    let (process, office) = (&picture.tick.process, &picture.tick.office);
    let (version, pid, state) = (&process.version, process.pid, &process.status.status);
    let bands = BANDS.into_iter().zip(picture.bands);
    let bands = join_parts(bands.map(|(name, number)| format!("{name} {}", format_rate(number))));
    let took = QUANTILES.into_iter().zip(picture.latencies);
    let took = join_parts(took.map(|((name, _), took)| format!("{name} {}", format_latency(took))));
    let (all, total) = (format_rate(picture.bands.iter().sum()), format_count(picture.total));
    let rows = [
        (
            "server",
            format!(
                "tidegate {version}, process {pid}, {state}, up {}",
                format_uptime(picture.uptime_seconds())
            ),
        ),
        (
            "rules",
            format!("version {} of {}, {} rules", office.version, office.database, office.rules),
        ),
        ("store", picture.store_summary()),
        ("decisions", format!("{all}/s ({bands}), {total} since the start")),
        ("refused", format_percent(picture.refused)),
        ("latency", took),
    ];
    let nodes = picture.nodes.iter().map(|node| ("node", node.describe()));
    let trouble = picture.server_error().map(|trouble| ("trouble", trouble.to_owned()));
    let rows = rows.into_iter().chain(nodes).chain(trouble);
    rows.map(|(name, value)| vec![name.to_owned(), escape_unprintable(&value)]).collect()
}

fn join_parts(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn rule_rows(picture: &TopSnapshot) -> Vec<Vec<String>> {
    let head =
        ["rule", "mode", "asked/s", "refused/s", "refused", "used", "<10% left", "most/window"];
    let rows = ViewState::default().visible_rules(picture).into_iter().map(|rule| {
        vec![
            escape_unprintable(&rule.id),
            escape_unprintable(rule.mode_or_disabled()),
            format_rate(rule.requests),
            format_rate(rule.refused),
            format_percent(rule.share),
            format_percent(rule.used),
            format_percent(rule.near_limit),
            rule.most_in_window.map_or_else(|| "–".to_owned(), format_count),
        ]
    });
    std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect()
}

fn key_rows(picture: &TopSnapshot, kind: &str) -> Vec<Vec<String>> {
    let head = vec![kind.to_owned(), "rule".to_owned(), "who".to_owned()];
    let rows = ViewState::default().visible_keys(picture, kind).into_iter().map(|key| {
        let times = format_estimate(key.count, key.error, key.spread);
        vec![times, escape_unprintable(&key.rule), format_key_owner(key.who.as_deref(), &key.key)]
    });
    std::iter::once(head).chain(rows).collect()
}

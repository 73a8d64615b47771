//! The picture of one instant as plain text, for pipes and files.

use super::picture::{Picture, QUANTILES};
use super::step::BANDS;
use super::view::View;
use super::words::{count, percent, rate, span, time, times, who};
use crate::output::{BOLD, columns, printable, table};

/// All of it.
pub(super) fn text(picture: &Picture) -> String {
    let node = printable(&picture.tick.process.node);
    let mut text = format!("{BOLD}{node}{BOLD:#}\n{}", columns(2, &facts(picture)));
    for rows in [rules(picture), keys(picture, "refused"), keys(picture, "busiest")] {
        text.push_str(&format!("\n{}", table(0, &rows)));
    }
    text
}

/// How it is, a line each.
fn facts(picture: &Picture) -> Vec<Vec<String>> {
    let (process, office) = (&picture.tick.process, &picture.tick.office);
    let (version, pid, state) = (&process.version, process.pid, &process.status.status);
    let bands = BANDS.into_iter().zip(picture.bands);
    let bands = listed(bands.map(|(name, number)| format!("{name} {}", rate(number))));
    let took = QUANTILES.into_iter().zip(picture.times);
    let took = listed(took.map(|((name, _), took)| format!("{name} {}", time(took))));
    let (all, total) = (rate(picture.bands.iter().sum()), count(picture.total));
    let rows = [
        (
            "server",
            format!("tidegate {version}, process {pid}, {state}, up {}", span(picture.up())),
        ),
        (
            "rules",
            format!("version {} of {}, {} rules", office.version, office.database, office.rules),
        ),
        ("store", picture.store()),
        ("decisions", format!("{all}/s ({bands}), {total} since the start")),
        ("refused", percent(picture.refused)),
        ("latency", took),
    ];
    let nodes = picture.nodes.iter().map(|node| ("node", node.in_words()));
    let trouble = picture.trouble().map(|trouble| ("trouble", trouble.to_owned()));
    let rows = rows.into_iter().chain(nodes).chain(trouble);
    rows.map(|(name, value)| vec![name.to_owned(), printable(&value)]).collect()
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn rules(picture: &Picture) -> Vec<Vec<String>> {
    let head =
        ["rule", "mode", "asked/s", "refused/s", "refused", "used", "<10% left", "most/window"];
    let rows = View::default().rules(picture).into_iter().map(|rule| {
        vec![
            printable(&rule.id),
            printable(rule.state()),
            rate(rule.asked),
            rate(rule.refused),
            percent(rule.share),
            percent(rule.used),
            percent(rule.scarce),
            rule.most_in_window.map_or_else(|| "–".to_owned(), count),
        ]
    });
    std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect()
}

fn keys(picture: &Picture, kind: &str) -> Vec<Vec<String>> {
    let head = vec![kind.to_owned(), "rule".to_owned(), "who".to_owned()];
    let rows = View::default().keys(picture, kind).into_iter().map(|key| {
        let times = times(key.count, key.error, key.spread);
        vec![times, printable(&key.rule), who(key.who.as_deref(), &key.key)]
    });
    std::iter::once(head).chain(rows).collect()
}

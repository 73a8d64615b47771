//! Draws the screen on test terminals of various sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::Color;

use super::super::api_types::VerdictTotals;
use super::super::feed::PolledDetails;
use super::super::fixtures::{sample_key, sample_rule, sample_tick};
use super::super::history::TickHistory;
use super::super::view::KeyPress;
use super::*;

/// A minute of a server with two rules, one of which refuses.
fn sample_snapshot() -> TopSnapshot {
    let mut history = TickHistory::default();
    for second in 0..=60 {
        let mut now = sample_tick(second * 1_000_000, second * 30, second * 10);
        let totals = |allow, deny| VerdictTotals { allow, deny, ..VerdictTotals::default() };
        now.counts.rules = vec![
            sample_rule("all\u{202e}", totals(second * 30, 0)),
            sample_rule("日本語", totals(second, second * 10)),
        ];
        history.push_tick(now);
    }
    let hostile = sample_key("refused", "user_id=\u{1b}]0;gone\u{7}<img>", 600);
    let keys = vec![hostile, sample_key("busiest", "ip=192.0.2.7", 1_800)];
    history.set_details(PolledDetails { keys, nodes: Vec::new() });
    TopSnapshot::from_history(&history).unwrap()
}

fn render(width: u16, height: u16, view: &ViewState, palette: Palette) -> (String, Vec<Color>) {
    render_snapshot(&sample_snapshot(), width, height, view, palette)
}

fn render_snapshot(
    snapshot: &TopSnapshot,
    width: u16,
    height: u16,
    view: &ViewState,
    palette: Palette,
) -> (String, Vec<Color>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw_screen(frame, Some(snapshot), view, palette)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width).max(1));
    let lines = lines.map(|line| line.iter().map(Cell::symbol).collect::<String>());
    let colors = buffer.content().iter().flat_map(|cell| [cell.fg, cell.bg]).collect();
    (lines.collect::<Vec<_>>().join("\n"), colors)
}

#[test]
fn standard_terminal_shows_every_section() {
    let (screen, colors) = render(100, 30, &ViewState::default(), Palette::Color);
    for words in [
        "north ready up 1m 0s  tidegate 0.1.0, process 7",
        "rules version 3, 2 rules (00000000000000ab)  store memory",
        "40/s  ■ allowed 30",
        "refused 25%  2400 since the start",
        "■ allowed 30  ■ shadow 0  ■ warned 0  ■ refused 10",
        "decision time p50",
        "RULE",
        "REQ/S▼",
        "all\\u{202e}",
        "TIMES REFUSED MOST",
        "600 user_id=\\u{1b}]0;gone\\u{7}",
        "1800 ip=192.0.2.7",
        "? help",
    ] {
        assert!(screen.contains(words), "{words}:\n{screen}");
    }
    assert!(!screen.contains(|c: char| c.is_control() && c != '\n'), "{screen:?}");
    assert!(!screen.contains('\u{202e}'));
    assert!(colors.contains(&Color::Red) && colors.contains(&Color::Green));
}

#[test]
fn rule_columns_align_under_wide_names() {
    let (screen, _) = render(100, 30, &ViewState::default(), Palette::Plain);
    let row = |name: &str| screen.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let rows = [row("all"), row("日")];
    let words = |row: &str| row.split("enforce").nth(1).unwrap().to_owned();
    let words = rows.each_ref().map(|row| words(row));
    let cells = words.each_ref().map(|row| row.split_whitespace().take(5).collect::<Vec<_>>());
    assert_eq!(cells, [["30", "0", "0%", "100%", "100%"], ["11", "10", "91%", "100%", "100%"]]);
    // A wide character takes two cells, the second of which is a space.
    let position = |row: &str| row.chars().position(|c| c == '%').unwrap();
    assert_eq!(position(&rows[0]), position(&rows[1]), "{rows:?}");
}

#[test]
fn disabled_rule_is_labelled_at_80_columns() {
    let mut snapshot = sample_snapshot();
    snapshot.rules[0].is_active = false;
    let (screen, _) = render_snapshot(&snapshot, 80, 24, &ViewState::default(), Palette::Plain);
    let row = |name: &str| screen.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("all").contains("disabled") && !row("all").contains("enforce"), "{screen}");
    assert!(row("日").contains("enforce"), "{screen}");
}

#[test]
fn local_decisions_are_shown_at_80_columns() {
    let mut snapshot = sample_snapshot();
    let draw = |snapshot: &TopSnapshot| {
        render_snapshot(snapshot, 80, 24, &ViewState::default(), Palette::Plain).0
    };
    let exact = draw(&snapshot);
    assert!(!exact.contains("COUNTED") && !exact.contains("local "), "{exact}");
    assert!(exact.contains("<10% LEFT"), "{exact}");
    (snapshot.local, snapshot.total) = (Some(934), 12_345);
    snapshot.rules[0].consistency = "leased".to_owned();
    let screen = draw(&snapshot);
    for words in ["local 93%  12345 since the start", "MODE     COUNTED   REQ/S", "enforce  leased"]
    {
        assert!(screen.contains(words), "{words}:\n{screen}");
    }
}

#[test]
fn share_borrowed_and_lent_fit_in_80_columns() {
    let mut snapshot = sample_snapshot();
    for rule in &mut snapshot.rules {
        rule.consistency = "leased".to_owned();
        (rule.region_share, rule.borrowed, rule.lent) = (Some("33.3%".to_owned()), Some(7), None);
    }
    snapshot.rules[0].lent = Some(12_345);
    let (screen, _) = render_snapshot(&snapshot, 80, 24, &ViewState::default(), Palette::Plain);
    let row = |name: &str, mode: &str| {
        let line = screen.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let cells = line.split(mode).nth(1).unwrap_or_default();
        cells.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("RULE", "MODE"), ["SHARE", "BORROWED", "LENT"], "{screen}");
    assert_eq!(row("all", "enforce"), ["33.3%", "7", "12345"], "{screen}");
    assert_eq!(row("日", "enforce"), ["33.3%", "7", "–"], "{screen}");
}

#[test]
fn legend_fits_in_80_columns() {
    let mut snapshot = sample_snapshot();
    for (bands, first, last) in [
        ([153_000, 4_300, 2_500, 51_000, 0], "211/s  ■ allowed 153", "■ banned 0"),
        ([12_345_000, 1_234_000, 123_000, 12_345_000, 12_000], "26059/s ■ allowed", "■ banned 12"),
        ([12_345_000; 5], "■ allowed 12345", "■ banned 12345"),
        (
            [99_999_000, 99_999_000, 99_999_000, 99_999_000, 0],
            "399.9k/s  ■ allowed 99999",
            "■ refused 99999",
        ),
    ] {
        snapshot.bands = bands;
        let (screen, _) = render_snapshot(&snapshot, 80, 24, &ViewState::default(), Palette::Color);
        let legend = screen.lines().nth(2).unwrap().trim_end().to_owned();
        assert!(legend.starts_with(first) && legend.ends_with(last), "{legend}");
    }
}

#[test]
fn plain_palette_uses_no_colors() {
    let (screen, colors) = render(100, 30, &ViewState::default(), Palette::Plain);
    assert!(colors.iter().all(|color| *color == Color::Reset));
    assert!(screen.contains("# refused 10") && screen.contains("::::") && screen.contains("####"));
}

#[test]
fn stale_state_is_shown_first() {
    let view = ViewState {
        disconnect_reason: Some("no \u{1b} answer".to_owned()),
        ..ViewState::default()
    };
    assert!(render(80, 24, &view, Palette::Plain).0.starts_with("LOST: no \\u{1b} answer north"));
    let view = ViewState { is_paused: true, ..ViewState::default() };
    assert!(render(80, 24, &view, Palette::Plain).0.starts_with("PAUSED north"));
}

#[test]
fn filter_and_help_are_drawn() {
    let mut view = ViewState::default();
    "/日".chars().for_each(|letter| _ = view.handle_key(KeyPress::Char(letter)));
    let (screen, _) = render(80, 24, &view, Palette::Plain);
    assert!(screen.contains("Enter keeps") && !screen.contains("all\\u{202e}"), "{screen}");
    view.handle_key(KeyPress::Enter);
    assert!(render(80, 24, &view, Palette::Plain).0.contains("(Esc clears)"));
    view.handle_key(KeyPress::Escape);
    view.handle_key(KeyPress::Char('?'));
    assert!(render(80, 24, &view, Palette::Plain).0.contains("reverse the order"));
}

/// Includes sizes smaller than any real terminal.
#[test]
fn every_terminal_size_can_be_drawn() {
    let help = ViewState { has_help: true, ..ViewState::default() };
    for width in (0..45).chain([79, 80, 81, 200, 500]) {
        for height in (0..40).chain([100]) {
            render(width, height, &ViewState::default(), Palette::Color);
            render(width, height, &help, Palette::Plain);
        }
    }
    let (screen, _) = render(40, 12, &ViewState::default(), Palette::Plain);
    assert!(screen.contains("日"), "{screen}");
}

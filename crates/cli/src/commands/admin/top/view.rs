//! The user's view settings: sort column, filter, pause, scroll position and help. Independent of
//! the terminal and of drawing: key presses arrive as plain values.

use std::cmp::{Ordering, Reverse};

use super::api_types::LiveKey;
use super::snapshot::{RuleActivity, TopSnapshot};

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPress {
    Char(char),
    /// Ends typing and keeps the filter.
    Enter,
    /// Ends typing and clears the filter.
    Escape,
    /// Deletes the last character of the filter.
    Backspace,
    /// Scrolls by a number of rows; negative is up.
    Rows(isize),
    /// Scrolls to the first row.
    First,
    /// Ctrl-C.
    Interrupt,
}

/// Whether the live view continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScreenFlow {
    Continue,
    Quit,
}

/// The column that rules are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RuleSort {
    Rule,
    #[default]
    Requests,
    Refused,
    Share,
    Used,
}

/// The sort columns, in the order of the table.
const SORT_ORDER: [RuleSort; 5] =
    [RuleSort::Rule, RuleSort::Requests, RuleSort::Refused, RuleSort::Share, RuleSort::Used];

/// The view settings.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewState {
    pub(super) sort: RuleSort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) has_help: bool,
    pub(super) is_paused: bool,
    /// Number of rules above the first one shown.
    pub(super) scroll_offset: usize,
    /// Why the connection to the server is lost, if it is.
    pub(super) disconnect_reason: Option<String>,
}

impl ViewState {
    /// Handles a key press.
    pub(super) fn handle_key(&mut self, press: KeyPress) -> ScreenFlow {
        if press == KeyPress::Interrupt {
            return ScreenFlow::Quit;
        }
        if self.is_typing {
            self.edit_filter(press);
            return ScreenFlow::Continue;
        }
        if std::mem::take(&mut self.has_help) {
            return ScreenFlow::Continue;
        }
        match press {
            KeyPress::Char('q') => return ScreenFlow::Quit,
            KeyPress::Char('?' | 'h') => self.has_help = true,
            KeyPress::Char('/') => self.is_typing = true,
            KeyPress::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyPress::Char('r') => self.is_reversed = !self.is_reversed,
            KeyPress::Char('s' | '>') => self.advance_sort(1),
            KeyPress::Char('<') => self.advance_sort(SORT_ORDER.len() - 1),
            KeyPress::Char('j') => self.scroll(1),
            KeyPress::Char('k') => self.scroll(-1),
            KeyPress::Rows(rows) => self.scroll(rows),
            KeyPress::First => self.scroll_offset = 0,
            KeyPress::Escape => self.clear_filter(),
            KeyPress::Char(_) | KeyPress::Enter | KeyPress::Backspace | KeyPress::Interrupt => {}
        }
        ScreenFlow::Continue
    }

    fn edit_filter(&mut self, press: KeyPress) {
        match press {
            KeyPress::Char(letter) => self.filter.push(letter),
            KeyPress::Backspace => _ = self.filter.pop(),
            KeyPress::Enter => self.is_typing = false,
            KeyPress::Escape => self.clear_filter(),
            KeyPress::Rows(_) | KeyPress::First | KeyPress::Interrupt => {}
        }
        self.scroll_offset = 0;
    }

    fn clear_filter(&mut self) {
        self.is_typing = false;
        self.filter.clear();
    }

    /// Moves the sort column forward, from the last to the first.
    fn advance_sort(&mut self, columns: usize) {
        let current = SORT_ORDER.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        self.sort = SORT_ORDER[(current + columns) % SORT_ORDER.len()];
        self.is_reversed = false;
        self.scroll_offset = 0;
    }

    fn scroll(&mut self, rows: isize) {
        self.scroll_offset = self.scroll_offset.saturating_add_signed(rows);
    }

    /// The rules that match the filter, sorted.
    pub(super) fn visible_rules<'p>(&self, snapshot: &'p TopSnapshot) -> Vec<&'p RuleActivity> {
        let matches = |row: &&RuleActivity| {
            self.matches_filter(&row.id) || self.matches_filter(&row.endpoint)
        };
        let mut rules: Vec<&RuleActivity> = snapshot.rules.iter().filter(matches).collect();
        rules.sort_by(|a, b| {
            let order = self.sort.compare(a, b).then_with(|| a.id.cmp(&b.id));
            if self.is_reversed { order.reverse() } else { order }
        });
        rules
    }

    /// The keys of a list that match the filter, most frequent first.
    pub(super) fn visible_keys<'p>(
        &self,
        snapshot: &'p TopSnapshot,
        kind: &str,
    ) -> Vec<&'p LiveKey> {
        let matches = |key: &&LiveKey| {
            self.matches_filter(&key.rule)
                || self.matches_filter(key.client.as_deref().unwrap_or(&key.key))
        };
        snapshot.keys.iter().filter(|key| key.kind == kind).filter(matches).collect()
    }

    fn matches_filter(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

impl RuleSort {
    /// Compares two rules: names in ascending order, numbers in descending order.
    fn compare(self, a: &RuleActivity, b: &RuleActivity) -> Ordering {
        match self {
            Self::Rule => a.id.cmp(&b.id),
            Self::Requests => Reverse(a.requests).cmp(&Reverse(b.requests)),
            Self::Refused => Reverse(a.refused).cmp(&Reverse(b.refused)),
            Self::Share => Reverse(a.share).cmp(&Reverse(b.share)),
            Self::Used => Reverse(a.used).cmp(&Reverse(b.used)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api_types::VerdictTotals;
    use super::super::feed::PolledDetails;
    use super::super::fixtures::{sample_key, sample_rule, sample_tick};
    use super::super::history::TickHistory;
    use super::*;

    fn sample_snapshot() -> TopSnapshot {
        let (before, mut after) = (sample_tick(0, 0, 0), sample_tick(1_000_000, 0, 0));
        let totals = |allow, deny| VerdictTotals { allow, deny, ..VerdictTotals::default() };
        let rules = [("Login", totals(1, 9)), ("api", totals(30, 0)), ("bulk", totals(30, 20))];
        after.counts.rules = rules.map(|(id, verdicts)| sample_rule(id, verdicts)).to_vec();
        let mut before = before;
        before.counts.rules =
            rules.map(|(id, _)| sample_rule(id, VerdictTotals::default())).to_vec();
        let mut history = TickHistory::default();
        history.push_tick(before);
        history.push_tick(after);
        let keys =
            vec![sample_key("refused", "ip=192.0.2.7", 9), sample_key("busiest", "user_id=Ann", 3)];
        history.set_details(PolledDetails { keys, nodes: Vec::new() });
        TopSnapshot::from_history(&history).unwrap()
    }

    fn visible_ids(view: &ViewState) -> Vec<String> {
        view.visible_rules(&sample_snapshot()).iter().map(|row| row.id.clone()).collect()
    }

    fn type_keys(view: &mut ViewState, text: &str) {
        text.chars().for_each(|letter| {
            assert_eq!(view.handle_key(KeyPress::Char(letter)), ScreenFlow::Continue);
        });
    }

    #[test]
    fn rules_sort_by_every_column() {
        let mut view = ViewState::default();
        assert_eq!(visible_ids(&view), ["bulk", "api", "Login"]);
        type_keys(&mut view, "s");
        assert_eq!(
            (view.sort, visible_ids(&view)),
            (RuleSort::Refused, vec!["bulk".into(), "Login".into(), "api".into()])
        );
        type_keys(&mut view, ">");
        assert_eq!(
            (view.sort, visible_ids(&view)),
            (RuleSort::Share, vec!["Login".into(), "bulk".into(), "api".into()])
        );
        type_keys(&mut view, "r");
        assert_eq!(visible_ids(&view), ["api", "bulk", "Login"]);
        type_keys(&mut view, ">>");
        assert_eq!(
            (view.sort, visible_ids(&view)),
            (RuleSort::Rule, vec!["Login".into(), "api".into(), "bulk".into()])
        );
        type_keys(&mut view, "<");
        assert_eq!(view.sort, RuleSort::Used);
    }

    #[test]
    fn filter_letters_are_not_commands() {
        let mut view = ViewState::default();
        type_keys(&mut view, "/loGq");
        assert!(visible_ids(&view).is_empty());
        view.handle_key(KeyPress::Backspace);
        assert_eq!(visible_ids(&view), ["Login"]);
        view.handle_key(KeyPress::Enter);
        assert_eq!(visible_ids(&view), ["Login"]);
        assert_eq!(view.handle_key(KeyPress::Char('q')), ScreenFlow::Quit);
        view.handle_key(KeyPress::Escape);
        assert_eq!(visible_ids(&view).len(), 3);
        type_keys(&mut view, "/ann");
        let keys = |view: &ViewState, kind| view.visible_keys(&sample_snapshot(), kind).len();
        assert_eq!((keys(&view, "refused"), keys(&view, "busiest")), (0, 1));
    }

    #[test]
    fn any_key_closes_help() {
        let mut view = ViewState::default();
        type_keys(&mut view, "?");
        assert!(view.has_help);
        type_keys(&mut view, "q");
        assert!(!view.has_help);
        type_keys(&mut view, "/");
        assert_eq!(view.handle_key(KeyPress::Interrupt), ScreenFlow::Quit);
    }

    #[test]
    fn scroll_stops_at_first_row() {
        let mut view = ViewState::default();
        view.handle_key(KeyPress::Rows(-3));
        assert_eq!(view.scroll_offset, 0);
        view.handle_key(KeyPress::Rows(5));
        type_keys(&mut view, "jjk");
        assert_eq!(view.scroll_offset, 6);
        view.handle_key(KeyPress::First);
        assert_eq!(view.scroll_offset, 0);
    }
}

//! How a person looks at it: sorted, filtered, paused, from which row on, with help or without. It takes what was
//! pressed as plain values and knows neither terminal nor drawing.

use std::cmp::{Ordering, Reverse};

use super::picture::{Picture, RuleRow};
use super::tick::Key;

/// What was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    /// A letter, a digit, a sign.
    Char(char),
    /// What ends the typing and keeps it.
    Enter,
    /// What ends the typing and forgets it.
    Escape,
    /// What takes the last letter back.
    Backspace,
    /// So many rows on.
    Rows(isize),
    /// To the first row.
    First,
    /// Ctrl-C.
    Interrupt,
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Quit,
}

/// What rules are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    Rule,
    #[default]
    Asked,
    Refused,
    Share,
    Used,
}

/// In the order of the columns.
const SORTS: [Sort; 5] = [Sort::Rule, Sort::Asked, Sort::Refused, Sort::Share, Sort::Used];

/// How a person looks.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) has_help: bool,
    pub(super) is_paused: bool,
    /// How many rules are above the first that is shown.
    pub(super) skipped: usize,
    /// Why nothing new comes, if nothing does.
    pub(super) lost: Option<String>,
}

impl View {
    /// Does what a key is for.
    pub(super) fn press(&mut self, press: Press) -> Flow {
        if press == Press::Interrupt {
            return Flow::Quit;
        }
        if self.is_typing {
            self.type_in(press);
            return Flow::On;
        }
        if std::mem::take(&mut self.has_help) {
            return Flow::On;
        }
        match press {
            Press::Char('q') => return Flow::Quit,
            Press::Char('?' | 'h') => self.has_help = true,
            Press::Char('/') => self.is_typing = true,
            Press::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Press::Char('r') => self.is_reversed = !self.is_reversed,
            Press::Char('s' | '>') => self.sort_by(1),
            Press::Char('<') => self.sort_by(SORTS.len() - 1),
            Press::Char('j') => self.skip(1),
            Press::Char('k') => self.skip(-1),
            Press::Rows(rows) => self.skip(rows),
            Press::First => self.skipped = 0,
            Press::Escape => self.forget_filter(),
            Press::Char(_) | Press::Enter | Press::Backspace | Press::Interrupt => {}
        }
        Flow::On
    }

    fn type_in(&mut self, press: Press) {
        match press {
            Press::Char(letter) => self.filter.push(letter),
            Press::Backspace => _ = self.filter.pop(),
            Press::Enter => self.is_typing = false,
            Press::Escape => self.forget_filter(),
            Press::Rows(_) | Press::First | Press::Interrupt => {}
        }
        self.skipped = 0;
    }

    fn forget_filter(&mut self) {
        self.is_typing = false;
        self.filter.clear();
    }

    /// Goes so many columns on, and from the last to the first.
    fn sort_by(&mut self, columns: usize) {
        let at = SORTS.iter().position(|known| *known == self.sort).unwrap_or(0);
        self.sort = SORTS[(at + columns) % SORTS.len()];
        self.is_reversed = false;
        self.skipped = 0;
    }

    fn skip(&mut self, rows: isize) {
        self.skipped = self.skipped.saturating_add_signed(rows);
    }

    /// The rules that are looked at, in order.
    pub(super) fn rules<'p>(&self, picture: &'p Picture) -> Vec<&'p RuleRow> {
        let fits = |row: &&RuleRow| self.fits(&row.id) || self.fits(&row.endpoint);
        let mut rules: Vec<&RuleRow> = picture.rules.iter().filter(fits).collect();
        rules.sort_by(|a, b| {
            let order = self.sort.compare(a, b).then_with(|| a.id.cmp(&b.id));
            if self.is_reversed { order.reverse() } else { order }
        });
        rules
    }

    /// The keys of a list that are looked at, those that occur most first.
    pub(super) fn keys<'p>(&self, picture: &'p Picture, kind: &str) -> Vec<&'p Key> {
        let fits =
            |key: &&Key| self.fits(&key.rule) || self.fits(key.who.as_deref().unwrap_or(&key.key));
        picture.keys.iter().filter(|key| key.kind == kind).filter(fits).collect()
    }

    fn fits(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

impl Sort {
    /// Names from the first letter on, numbers from the highest on.
    fn compare(self, a: &RuleRow, b: &RuleRow) -> Ordering {
        match self {
            Self::Rule => a.id.cmp(&b.id),
            Self::Asked => Reverse(a.asked).cmp(&Reverse(b.asked)),
            Self::Refused => Reverse(a.refused).cmp(&Reverse(b.refused)),
            Self::Share => Reverse(a.share).cmp(&Reverse(b.share)),
            Self::Used => Reverse(a.used).cmp(&Reverse(b.used)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::Asked;
    use super::super::history::History;
    use super::super::sample::{key, rule, tick};
    use super::super::tick::Verdicts;
    use super::*;

    fn picture() -> Picture {
        let (before, mut after) = (tick(0, 0, 0), tick(1_000_000, 0, 0));
        let said = |allow, deny| Verdicts { allow, deny, ..Verdicts::default() };
        let rules = [("Login", said(1, 9)), ("api", said(30, 0)), ("bulk", said(30, 20))];
        after.counts.rules = rules.map(|(id, verdicts)| rule(id, verdicts)).to_vec();
        let mut before = before;
        before.counts.rules = rules.map(|(id, _)| rule(id, Verdicts::default())).to_vec();
        let mut history = History::default();
        history.tick(before);
        history.tick(after);
        let keys = vec![key("refused", "ip=192.0.2.7", 9), key("busiest", "user_id=Ann", 3)];
        history.asked(Asked { keys, nodes: Vec::new() });
        Picture::of(&history).unwrap()
    }

    fn ids(view: &View) -> Vec<String> {
        view.rules(&picture()).iter().map(|row| row.id.clone()).collect()
    }

    fn typed(view: &mut View, text: &str) {
        text.chars().for_each(|letter| assert_eq!(view.press(Press::Char(letter)), Flow::On));
    }

    #[test]
    fn the_busiest_rules_come_first_and_every_column_sorts() {
        let mut view = View::default();
        assert_eq!(ids(&view), ["bulk", "api", "Login"]);
        typed(&mut view, "s");
        assert_eq!(
            (view.sort, ids(&view)),
            (Sort::Refused, vec!["bulk".into(), "Login".into(), "api".into()])
        );
        typed(&mut view, ">");
        assert_eq!(
            (view.sort, ids(&view)),
            (Sort::Share, vec!["Login".into(), "bulk".into(), "api".into()])
        );
        typed(&mut view, "r");
        assert_eq!(ids(&view), ["api", "bulk", "Login"]);
        typed(&mut view, ">>");
        assert_eq!(
            (view.sort, ids(&view)),
            (Sort::Rule, vec!["Login".into(), "api".into(), "bulk".into()])
        );
        typed(&mut view, "<");
        assert_eq!(view.sort, Sort::Used);
    }

    #[test]
    fn a_filter_is_typed_kept_and_cleared_and_its_letters_are_no_commands() {
        let mut view = View::default();
        typed(&mut view, "/loGq");
        assert!(ids(&view).is_empty());
        view.press(Press::Backspace);
        assert_eq!(ids(&view), ["Login"]);
        view.press(Press::Enter);
        assert_eq!(ids(&view), ["Login"]);
        assert_eq!(view.press(Press::Char('q')), Flow::Quit);
        view.press(Press::Escape);
        assert_eq!(ids(&view).len(), 3);
        typed(&mut view, "/ann");
        let keys = |view: &View, kind| view.keys(&picture(), kind).len();
        assert_eq!((keys(&view, "refused"), keys(&view, "busiest")), (0, 1));
    }

    #[test]
    fn help_goes_with_any_key_and_ctrl_c_ends_it_everywhere() {
        let mut view = View::default();
        typed(&mut view, "?");
        assert!(view.has_help);
        typed(&mut view, "q");
        assert!(!view.has_help);
        typed(&mut view, "/");
        assert_eq!(view.press(Press::Interrupt), Flow::Quit);
    }

    #[test]
    fn rows_are_skipped_but_never_before_the_first() {
        let mut view = View::default();
        view.press(Press::Rows(-3));
        assert_eq!(view.skipped, 0);
        view.press(Press::Rows(5));
        typed(&mut view, "jjk");
        assert_eq!(view.skipped, 6);
        view.press(Press::First);
        assert_eq!(view.skipped, 0);
    }
}

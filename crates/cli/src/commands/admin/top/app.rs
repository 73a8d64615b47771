//! What was heard and how a person looks at it, together: what the screen shows.

use ratatui::Frame;

use super::draw::{self, Palette};
use super::feed::FeedEvent;
use super::history::TickHistory;
use super::snapshot::TopSnapshot;
use super::view::{KeyPress, ScreenFlow, ViewState};

/// What the screen shows.
#[derive(Debug, Default)]
pub(super) struct TopApp {
    history: TickHistory,
    view: ViewState,
    /// What is seen: the newest, unless it was stopped.
    snapshot: Option<TopSnapshot>,
}

impl TopApp {
    /// Hears something. What is seen stays while it is stopped or lost; what happens meanwhile is seen later.
    pub(super) fn handle_event(&mut self, heard: FeedEvent) {
        match heard {
            FeedEvent::Tick(tick) => {
                self.history.push_tick(*tick);
                self.view.disconnect_reason = None;
            }
            FeedEvent::Details(asked) => self.history.set_details(asked),
            FeedEvent::Disconnected(why) => self.view.disconnect_reason = Some(why),
        }
        self.refresh();
    }

    /// Does what a key is for.
    pub(super) fn handle_key(&mut self, press: KeyPress) -> ScreenFlow {
        let flow = self.view.handle_key(press);
        self.refresh();
        flow
    }

    fn refresh(&mut self) {
        if !self.view.is_paused || self.snapshot.is_none() {
            self.snapshot = TopSnapshot::from_history(&self.history);
        }
    }

    /// Draws it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, ink: Palette) {
        draw::draw_screen(frame, self.snapshot.as_ref(), &self.view, ink);
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::PolledDetails;
    use super::super::fixtures::sample_tick;
    use super::*;

    fn total_decisions(board: &TopApp) -> Option<u64> {
        board.snapshot.as_ref().map(|picture| picture.total)
    }

    #[test]
    fn paused_screen_resumes_with_all_ticks() {
        let mut board = TopApp::default();
        board.handle_key(KeyPress::Char('p'));
        board.handle_event(FeedEvent::Tick(Box::new(sample_tick(0, 1, 0))));
        assert_eq!(total_decisions(&board), Some(1), "there is nothing to keep before the first");
        board.handle_event(FeedEvent::Tick(Box::new(sample_tick(1_000_000, 2, 0))));
        assert_eq!(total_decisions(&board), Some(1));
        board.handle_key(KeyPress::Char('p'));
        assert_eq!(total_decisions(&board), Some(2));
        assert_eq!(board.snapshot.unwrap().trend.len(), 1);
    }

    #[test]
    fn disconnect_notice_clears_on_next_tick() {
        let mut board = TopApp::default();
        board.handle_event(FeedEvent::Tick(Box::new(sample_tick(0, 1, 0))));
        board.handle_event(FeedEvent::Disconnected("it is gone".to_owned()));
        assert_eq!(
            (total_decisions(&board), board.view.disconnect_reason.as_deref()),
            (Some(1), Some("it is gone"))
        );
        board.handle_event(FeedEvent::Details(PolledDetails::default()));
        assert!(board.view.disconnect_reason.is_some(), "that is no sign that events come");
        board.handle_event(FeedEvent::Tick(Box::new(sample_tick(1_000_000, 2, 0))));
        assert_eq!(board.view.disconnect_reason, None);
    }
}

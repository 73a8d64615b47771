//! The state of the live view: received data and the user's view settings.

use ratatui::Frame;

use super::draw::{self, Palette};
use super::feed::FeedEvent;
use super::history::TickHistory;
use super::snapshot::TopSnapshot;
use super::view::{KeyPress, ScreenFlow, ViewState};

/// The state of the live view.
#[derive(Debug, Default)]
pub(super) struct TopApp {
    history: TickHistory,
    view: ViewState,
    /// The snapshot on the screen: the newest one, unless the view is paused.
    snapshot: Option<TopSnapshot>,
}

impl TopApp {
    /// Handles an event of the feed. While the view is paused, ticks are recorded but not shown.
    pub(super) fn handle_event(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Tick(tick) => {
                self.history.push_tick(*tick);
                self.view.disconnect_reason = None;
            }
            FeedEvent::Details(details) => self.history.set_details(details),
            FeedEvent::Disconnected(why) => self.view.disconnect_reason = Some(why),
        }
        self.refresh();
    }

    /// Handles a key press.
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

    /// Draws the screen.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, palette: Palette) {
        draw::draw_screen(frame, self.snapshot.as_ref(), &self.view, palette);
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::PolledDetails;
    use super::super::fixtures::sample_tick;
    use super::*;

    fn total_decisions(app: &TopApp) -> Option<u64> {
        app.snapshot.as_ref().map(|snapshot| snapshot.total)
    }

    #[test]
    fn paused_screen_resumes_with_all_ticks() {
        let mut app = TopApp::default();
        app.handle_key(KeyPress::Char('p'));
        app.handle_event(FeedEvent::Tick(Box::new(sample_tick(0, 1, 0))));
        assert_eq!(total_decisions(&app), Some(1), "the first tick is always shown");
        app.handle_event(FeedEvent::Tick(Box::new(sample_tick(1_000_000, 2, 0))));
        assert_eq!(total_decisions(&app), Some(1));
        app.handle_key(KeyPress::Char('p'));
        assert_eq!(total_decisions(&app), Some(2));
        assert_eq!(app.snapshot.unwrap().trend.len(), 1);
    }

    #[test]
    fn disconnect_notice_clears_on_next_tick() {
        let mut app = TopApp::default();
        app.handle_event(FeedEvent::Tick(Box::new(sample_tick(0, 1, 0))));
        app.handle_event(FeedEvent::Disconnected("it is gone".to_owned()));
        assert_eq!(
            (total_decisions(&app), app.view.disconnect_reason.as_deref()),
            (Some(1), Some("it is gone"))
        );
        app.handle_event(FeedEvent::Details(PolledDetails::default()));
        assert!(app.view.disconnect_reason.is_some(), "only a tick clears the notice");
        app.handle_event(FeedEvent::Tick(Box::new(sample_tick(1_000_000, 2, 0))));
        assert_eq!(app.view.disconnect_reason, None);
    }
}

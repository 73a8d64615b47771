//! What was heard and how a person looks at it, together: what the screen shows.

use ratatui::Frame;

use super::draw::{self, Ink};
use super::feed::Heard;
use super::history::History;
use super::picture::Picture;
use super::view::{Flow, Press, View};

/// What the screen shows.
#[derive(Debug, Default)]
pub(super) struct Board {
    history: History,
    view: View,
    /// What is seen: the newest, unless it was stopped.
    picture: Option<Picture>,
}

impl Board {
    /// Hears something. What is seen stays while it is stopped or lost; what happens meanwhile is seen later.
    pub(super) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Tick(tick) => {
                self.history.tick(*tick);
                self.view.lost = None;
            }
            Heard::Asked(asked) => self.history.asked(asked),
            Heard::Lost(why) => self.view.lost = Some(why),
        }
        self.look();
    }

    /// Does what a key is for.
    pub(super) fn press(&mut self, press: Press) -> Flow {
        let flow = self.view.press(press);
        self.look();
        flow
    }

    fn look(&mut self) {
        if !self.view.is_paused || self.picture.is_none() {
            self.picture = Picture::of(&self.history);
        }
    }

    /// Draws it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, ink: Ink) {
        draw::all(frame, self.picture.as_ref(), &self.view, ink);
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::Asked;
    use super::super::sample::tick;
    use super::*;

    fn total(board: &Board) -> Option<u64> {
        board.picture.as_ref().map(|picture| picture.total)
    }

    #[test]
    fn a_stopped_picture_stays_and_goes_on_with_all_that_happened() {
        let mut board = Board::default();
        board.press(Press::Char('p'));
        board.hear(Heard::Tick(Box::new(tick(0, 1, 0))));
        assert_eq!(total(&board), Some(1), "there is nothing to keep before the first");
        board.hear(Heard::Tick(Box::new(tick(1_000_000, 2, 0))));
        assert_eq!(total(&board), Some(1));
        board.press(Press::Char('p'));
        assert_eq!(total(&board), Some(2));
        assert_eq!(board.picture.unwrap().past.len(), 1);
    }

    #[test]
    fn a_lost_connection_is_said_until_something_comes_and_the_picture_stays() {
        let mut board = Board::default();
        board.hear(Heard::Tick(Box::new(tick(0, 1, 0))));
        board.hear(Heard::Lost("it is gone".to_owned()));
        assert_eq!((total(&board), board.view.lost.as_deref()), (Some(1), Some("it is gone")));
        board.hear(Heard::Asked(Asked::default()));
        assert!(board.view.lost.is_some(), "that is no sign that events come");
        board.hear(Heard::Tick(Box::new(tick(1_000_000, 2, 0))));
        assert_eq!(board.view.lost, None);
    }
}

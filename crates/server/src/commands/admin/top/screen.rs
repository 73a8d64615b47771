//! The terminal: taken when it begins, given back however it ends, drawn on when something was heard or pressed.

use std::io;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use ratatui::{DefaultTerminal, Frame};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::super::api::Api;
use super::board::Board;
use super::draw::Ink;
use super::feed;
use super::view::{Flow, Press};
use crate::client::Events;
use crate::failure::Failure;

/// How many rows a page has, roughly: how high the table is, only the drawing knows.
const PAGE: isize = 10;

/// How much may wait to be drawn.
const WAITING: usize = 8;

/// Shows what comes until the person leaves.
///
/// # Errors
/// When the terminal cannot be used.
pub(super) async fn show(api: Api, first: Events) -> Result<(), Failure> {
    let (to, mut heard) = mpsc::channel(WAITING);
    let (mut terminate, mut hang_up) =
        (ends(SignalKind::terminate())?, ends(SignalKind::hangup())?);
    let mut screen = Screen::take()?;
    let feed = tokio::spawn(feed::run(api, first, to));
    let (mut board, mut events, ink) = (Board::default(), EventStream::new(), Ink::wanted());
    let outcome = loop {
        if let Err(error) = screen.draw(|frame| board.draw(frame, ink)) {
            break Err(error.into());
        }
        tokio::select! {
            Some(heard) = heard.recv() => board.hear(heard),
            event = events.next() => match event.transpose() {
                Ok(Some(event)) => {
                    if press(&event).is_some_and(|press| board.press(press) == Flow::Quit) {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            },
            _ = terminate.recv() => break Ok(()),
            _ = hang_up.recv() => break Ok(()),
        }
    };
    feed.abort();
    outcome
}

fn ends(kind: SignalKind) -> io::Result<Signal> {
    signal(kind)
}

/// The terminal while it is ours: raw, and on the screen beside the one where the shell is.
struct Screen(DefaultTerminal);

impl Screen {
    /// Takes it. From now on a panic gives it back first, so that what it says is seen.
    fn take() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }

    fn draw(&mut self, with: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(with).map(drop)
    }
}

impl Drop for Screen {
    /// The cursor is shown again by the terminal's own drop. To leave the screen twice would put the shell's prompt over
    /// what a panic said.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

/// What an event of the terminal means; none for those that mean nothing. A change of its size only needs a drawing.
fn press(event: &Event) -> Option<Press> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    let control = modifiers.contains(KeyModifiers::CONTROL);
    Some(match code {
        KeyCode::Char('c') if control => Press::Interrupt,
        KeyCode::Char(letter) if !control => Press::Char(*letter),
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Escape,
        KeyCode::Backspace => Press::Backspace,
        KeyCode::Up => Press::Rows(-1),
        KeyCode::Down => Press::Rows(1),
        KeyCode::PageUp => Press::Rows(-PAGE),
        KeyCode::PageDown => Press::Rows(PAGE),
        KeyCode::Home => Press::First,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::tmux::Tmux;

    use super::*;

    /// Set where this test is the program in the terminal.
    const INSIDE: &str = "TIDEGATE_TEST_PANICS";

    /// What a panic says, on more lines than what comes after it leaves out.
    const WORDS: [&str; 6] = ["the first word", "second", "third", "fourth", "fifth", "the last"];

    /// The terminal is given back before the words are written, and not again over them. Run in a terminal of its own:
    /// this very test, which panics there in the middle of a picture.
    #[test]
    fn what_a_panic_says_is_seen_below_what_was_there_before() {
        if std::env::var_os(INSIDE).is_some() {
            let mut screen = Screen::take().unwrap();
            screen.draw(|frame| frame.render_widget("the picture", frame.area())).unwrap();
            panic!("{}", WORDS.join("\n"));
        }
        // As wide as the longest line.
        let (tmux, program) = (Tmux::start(250, 34), std::env::current_exe().unwrap());
        let name = format!("{}::what_a_panic_says_is_seen", module_path!());
        let (_, name) = name.split_once("::").unwrap();
        tmux.run(&["echo", "what was there before"]);
        tmux.wait("\nwhat was there before\nready$");
        tmux.run(&["env", &format!("{INSIDE}=1"), program.to_str().unwrap(), "--nocapture", name]);
        let screen = tmux.wait_until("the end", |screen| {
            screen.contains("test result: FAILED") && screen.trim_end().ends_with("ready$")
        });
        // All of it: were the prompt to go back, some of it would be written over.
        let said = format!("panicked at {}:", file!());
        let all = ["what was there before", &said].into_iter().chain(WORDS);
        let places: Vec<_> = all.map(|words| screen.rfind(words)).collect();
        assert!(places.is_sorted() && places[0].is_some(), "{screen}");
        assert!(!screen.contains("the picture"), "{screen}");
        let state = [tmux.knows("alternate_on"), tmux.knows("cursor_flag")];
        assert_eq!(state, ["0", "1"], "the shell's screen, and its cursor");
    }

    #[test]
    fn letters_are_letters_and_ctrl_c_is_none() {
        let key = |code, modifiers| press(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(Press::Char('c')));
        assert_eq!(key(KeyCode::Char('S'), KeyModifiers::SHIFT), Some(Press::Char('S')));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Press::Interrupt));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(press(&Event::Resize(10, 10)), None);
    }
}

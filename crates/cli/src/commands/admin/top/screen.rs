//! The terminal: taken when it begins, given back however it ends, drawn on when something was heard or pressed.

use std::io;
use std::os::fd::AsFd;
use std::thread;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::super::api::AdminClient;
use super::app::TopApp;
use super::draw::Palette;
use super::feed;
use super::view::{KeyPress, ScreenFlow};
use crate::http_client::SseStream;
use tidegate_server::error::CommandError;

/// How many rows a page has, roughly: how high the table is, only the drawing knows.
const PAGE_ROWS: isize = 10;

/// How much may wait to be drawn.
const EVENT_BUFFER: usize = 8;

/// Shows what comes until the person leaves.
///
/// # Errors
/// When the terminal cannot be used.
pub(super) async fn run_screen(api: AdminClient, first: SseStream) -> Result<(), CommandError> {
    let (to, mut heard) = mpsc::channel(EVENT_BUFFER);
    let (mut terminate, mut hang_up) =
        (listen_for_signal(SignalKind::terminate())?, listen_for_signal(SignalKind::hangup())?);
    let mut screen = TerminalScreen::enter()?;
    exit_on_hang_up()?;
    let feed = tokio::spawn(feed::run(api, first, to));
    let (mut board, mut events, ink) = (TopApp::default(), EventStream::new(), Palette::from_env());
    let outcome = loop {
        if let Err(error) = screen.draw(|frame| board.draw(frame, ink)) {
            break Err(error.into());
        }
        tokio::select! {
            Some(heard) = heard.recv() => board.handle_event(heard),
            event = events.next() => match event.transpose() {
                Ok(Some(event)) => {
                    if map_key(&event).is_some_and(|press| board.handle_key(press) == ScreenFlow::Quit) {
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

/// Ends the process when its terminal goes away. crossterm reads such a terminal in an endless loop,
/// in whichever thread notices first, so that neither SIGHUP nor SIGTERM may ever be handled.
fn exit_on_hang_up() -> io::Result<()> {
    thread::Builder::new().name("hang-up".to_owned()).spawn(|| {
        if wait_for_hang_up(&io::stdin()).is_ok() {
            exit();
        }
    })?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "main may be in the loop, and no terminal is left")]
fn exit() -> ! {
    std::process::exit(0)
}

/// Blocks until a terminal hangs up: the one event that `poll` reports unasked.
fn wait_for_hang_up(terminal: &impl AsFd) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(terminal, PollFlags::empty())], None) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn listen_for_signal(kind: SignalKind) -> io::Result<Signal> {
    signal(kind)
}

/// The terminal while it is ours: raw, and on the screen beside the one where the shell is.
struct TerminalScreen(DefaultTerminal);

impl TerminalScreen {
    /// Takes it. From now on a panic gives it back first, so that what it says is seen.
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }

    fn draw(&mut self, with: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(with).map(drop)
    }
}

impl Drop for TerminalScreen {
    /// The cursor is shown again by the terminal's own drop. To leave the screen twice would put the shell's prompt over
    /// what a panic said.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

/// What an event of the terminal means; none for those that mean nothing. A change of its size only needs a drawing.
fn map_key(event: &Event) -> Option<KeyPress> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    let control = modifiers.contains(KeyModifiers::CONTROL);
    Some(match code {
        KeyCode::Char('c') if control => KeyPress::Interrupt,
        KeyCode::Char(letter) if !control => KeyPress::Char(*letter),
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Escape,
        KeyCode::Backspace => KeyPress::Backspace,
        KeyCode::Up => KeyPress::Rows(-1),
        KeyCode::Down => KeyPress::Rows(1),
        KeyCode::PageUp => KeyPress::Rows(-PAGE_ROWS),
        KeyCode::PageDown => KeyPress::Rows(PAGE_ROWS),
        KeyCode::Home => KeyPress::First,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::tmux::TmuxSession;

    use super::*;

    /// Set where this test is the program in the terminal.
    const PANIC_ENV: &str = "TIDEGATE_TEST_PANICS";

    /// What a panic says, on more lines than what comes after it leaves out.
    const PANIC_LINES: [&str; 6] =
        ["the first word", "second", "third", "fourth", "fifth", "the last"];

    /// The terminal is given back before the words are written, and not again over them. Run in a terminal of its own:
    /// this very test, which panics there in the middle of a picture.
    #[test]
    fn panic_message_survives_terminal_restore() {
        if std::env::var_os(PANIC_ENV).is_some() {
            let mut screen = TerminalScreen::enter().unwrap();
            screen.draw(|frame| frame.render_widget("the picture", frame.area())).unwrap();
            panic!("{}", PANIC_LINES.join("\n"));
        }
        // As wide as the longest line.
        let (tmux, program) = (TmuxSession::start(250, 34), std::env::current_exe().unwrap());
        let name = format!("{}::panic_message_survives_terminal_restore", module_path!());
        let (_, name) = name.split_once("::").unwrap();
        tmux.run(&["echo", "what was there before"]);
        tmux.wait_for_text("\nwhat was there before\nready$");
        tmux.run(&[
            "env",
            &format!("{PANIC_ENV}=1"),
            program.to_str().unwrap(),
            "--nocapture",
            name,
        ]);
        let screen = tmux.wait_until("the end", |screen| {
            screen.contains("test result: FAILED") && screen.trim_end().ends_with("ready$")
        });
        // All of it: were the prompt to go back, some of it would be written over.
        let said = format!("panicked at {}:", file!());
        let all = ["what was there before", &said].into_iter().chain(PANIC_LINES);
        let places: Vec<_> = all.map(|words| screen.rfind(words)).collect();
        assert!(places.is_sorted() && places[0].is_some(), "{screen}");
        assert!(!screen.contains("the picture"), "{screen}");
        let state = [tmux.format_value("alternate_on"), tmux.format_value("cursor_flag")];
        assert_eq!(state, ["0", "1"], "the shell's screen, and its cursor");
    }

    #[test]
    fn only_hang_up_ends_wait() {
        let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let slave = std::fs::File::open(name.to_str().unwrap()).unwrap();
        rustix::io::write(&master, b"q\n").unwrap();
        let waiting = thread::spawn(move || wait_for_hang_up(&slave));
        thread::yield_now();
        assert!(!waiting.is_finished());
        drop(master);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn ctrl_c_maps_to_interrupt() {
        let key = |code, modifiers| map_key(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(KeyPress::Char('c')));
        assert_eq!(key(KeyCode::Char('S'), KeyModifiers::SHIFT), Some(KeyPress::Char('S')));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(KeyPress::Interrupt));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(map_key(&Event::Resize(10, 10)), None);
    }
}

//! Runs the live view in the terminal. Redraws on every event and key press, and restores the
//! terminal on every exit path, including panics.

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

/// Rows to scroll per page; an approximation, because only the drawing code knows the table's
/// height.
const PAGE_ROWS: isize = 10;

/// Capacity of the channel of feed events.
const EVENT_BUFFER: usize = 8;

/// Shows the live view until the user quits, or on SIGTERM or SIGHUP.
///
/// # Errors
/// If the terminal cannot be used.
pub(super) async fn run_screen(api: AdminClient, first: SseStream) -> Result<(), CommandError> {
    let (to, mut feed_events) = mpsc::channel(EVENT_BUFFER);
    let (mut terminate, mut hang_up) =
        (listen_for_signal(SignalKind::terminate())?, listen_for_signal(SignalKind::hangup())?);
    let mut screen = TerminalScreen::enter()?;
    exit_on_hang_up()?;
    let feed = tokio::spawn(feed::run(api, first, to));
    let (mut app, mut events, palette) =
        (TopApp::default(), EventStream::new(), Palette::from_env());
    let outcome = loop {
        if let Err(error) = screen.draw(|frame| app.draw(frame, palette)) {
            break Err(error.into());
        }
        tokio::select! {
            Some(event) = feed_events.recv() => app.handle_event(event),
            event = events.next() => match event.transpose() {
                Ok(Some(event)) => {
                    if map_key(&event).is_some_and(|press| app.handle_key(press) == ScreenFlow::Quit) {
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

/// Ends the process when its terminal hangs up. crossterm then reads in an endless loop, possibly
/// on the main thread, so that neither SIGHUP nor SIGTERM might ever be handled.
fn exit_on_hang_up() -> io::Result<()> {
    thread::Builder::new().name("hang-up".to_owned()).spawn(|| {
        if wait_for_hang_up(&io::stdin()).is_ok() {
            exit();
        }
    })?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the main thread may be in crossterm's loop, and there is no terminal to restore"
)]
fn exit() -> ! {
    std::process::exit(0)
}

/// Blocks until a terminal hangs up, which `poll` reports even if no events are requested.
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

/// The terminal in raw mode, on the alternate screen.
struct TerminalScreen(DefaultTerminal);

impl TerminalScreen {
    /// Enters raw mode and the alternate screen. Installs a panic hook that restores the terminal
    /// before the panic message is printed.
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }

    fn draw(&mut self, with: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(with).map(drop)
    }
}

impl Drop for TerminalScreen {
    /// Restores the terminal, except during a panic: the panic hook already did, and leaving the
    /// alternate screen twice would put the shell's prompt over the panic message. The drop of
    /// `DefaultTerminal` shows the cursor.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

/// Translates a terminal event to a key press. Other events return `None`; a resize only needs the
/// redraw that every event causes.
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

    /// Set in the process that runs this test inside the terminal.
    const PANIC_ENV: &str = "TIDEGATE_TEST_PANICS";

    /// The lines of the panic message; more than a misplaced prompt would overwrite.
    const PANIC_LINES: [&str; 6] =
        ["the first word", "second", "third", "fourth", "fifth", "the last"];

    /// The terminal is restored before the panic message is printed, and not a second time after
    /// it. The test starts itself in a separate terminal, where it panics while drawing.
    #[test]
    fn panic_message_survives_terminal_restore() {
        if std::env::var_os(PANIC_ENV).is_some() {
            let mut screen = TerminalScreen::enter().unwrap();
            screen.draw(|frame| frame.render_widget("the picture", frame.area())).unwrap();
            panic!("{}", PANIC_LINES.join("\n"));
        }
        // Wide enough that no line wraps.
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
        // The complete message must be there: a prompt in the wrong place would overwrite part of
        // it.
        let message = format!("panicked at {}:", file!());
        let lines = ["what was there before", &message].into_iter().chain(PANIC_LINES);
        let positions: Vec<_> = lines.map(|words| screen.rfind(words)).collect();
        assert!(positions.is_sorted() && positions[0].is_some(), "{screen}");
        assert!(!screen.contains("the picture"), "{screen}");
        let state = [tmux.format_value("alternate_on"), tmux.format_value("cursor_flag")];
        assert_eq!(state, ["0", "1"], "main screen active, cursor visible");
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

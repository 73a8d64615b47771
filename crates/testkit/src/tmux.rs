//! A terminal that a test looks at: tmux with a shell in one window, typed into and read as a person would.
//!
//! The server stays in the foreground (`-D`), so that it is a child that surely ends with the test; what runs in its
//! window ends with it, because its terminal is gone. Its socket is in a folder of its own, so that no other tmux is met.

#![expect(clippy::expect_used, reason = "a test whose terminal does not obey cannot go on")]

use std::ffi::OsStr;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::process::{ChildProcess, eventually};

/// What the shell says when it waits.
const PROMPT: &str = "ready$";

/// A terminal of the test's own, ended on drop.
#[derive(Debug)]
pub struct TmuxSession {
    _server: ChildProcess,
    folder: TempDir,
}

impl TmuxSession {
    /// Starts one with so many columns and rows, and a shell that waits.
    ///
    /// # Panics
    /// When it does not start, with what it says.
    #[must_use]
    pub fn start(columns: u16, rows: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("tmux");
        command.arg("-S").arg(folder.path().join("socket"));
        command.args(["-f", "/dev/null", "-u", "-D"]).env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        let server = ChildProcess::start(&command, &folder.path().join("output.log"));
        let tmux = Self { _server: server, folder };
        eventually("tmux listens", || tmux.folder.path().join("socket").exists());
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let shell =
            format!("env -i PATH=\"$PATH\" TERM=tmux-256color LC_ALL=C.UTF-8 PS1='{PROMPT} ' sh");
        let started = || {
            let words = ["new-session", "-d", "-x", &columns, "-y", &rows, &shell];
            tmux.try_run_tmux(&words).status.success()
        };
        eventually("tmux opens a window", started);
        tmux.wait_for_text(PROMPT);
        tmux
    }

    /// Runs a command in the shell.
    pub fn run(&self, words: &[&str]) {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        self.type_in(&quoted.join(" "));
        self.press("Enter");
    }

    /// Types letters.
    pub fn type_in(&self, text: &str) {
        self.run_tmux(&["send-keys", "-l", "--", text]);
    }

    /// Presses a key by tmux's name for it: `Enter`, `Escape`, `C-c`.
    pub fn press(&self, key: &str) {
        self.run_tmux(&["send-keys", key]);
    }

    /// What is on the screen now, without the blanks at the ends of its lines.
    #[must_use]
    pub fn screen(&self) -> String {
        self.run_tmux(&["capture-pane", "-p"])
    }

    /// What tmux knows of the terminal, by the name of a format: `cursor_flag`, `alternate_on`, `pane_title`.
    #[must_use]
    pub fn format_value(&self, format: &str) -> String {
        self.run_tmux(&["display-message", "-p", &format!("#{{{format}}}")]).trim_end().to_owned()
    }

    /// Gives it another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.run_tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// Waits until words are on the screen.
    ///
    /// # Panics
    /// With the screen, when they do not come.
    #[track_caller]
    pub fn wait_for_text(&self, words: &str) {
        self.wait_until(words, |screen| screen.contains(words));
    }

    /// Waits until the screen is as it should be, and tells it.
    ///
    /// # Panics
    /// With the screen, when it does not become so.
    #[track_caller]
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let looked = crate::process::poll_until(crate::process::WAIT_TIMEOUT, || {
            screen = self.screen();
            is_so(&screen).then_some(())
        });
        assert!(looked.is_some(), "waited in vain for {what}; on the screen is:\n{screen}");
        screen
    }

    fn run_tmux(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.try_run_tmux(words);
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        assert!(status.success(), "tmux {words:?}: {stderr}");
        String::from_utf8_lossy(&stdout).into_owned()
    }

    fn try_run_tmux(&self, words: &[impl AsRef<OsStr>]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("socket")).arg("-u").args(words);
        command.env_remove("TMUX").output().expect("tmux, which `cargo xtask setup` installs")
    }
}

//! A terminal for tests: tmux with a shell in one window. Tests type into it and read its screen.
//!
//! The tmux server stays in the foreground (`-D`), so that it is a child process that ends with the
//! test. Programs in its window end with it, because their terminal is closed. Its socket is in a
//! private folder, so that it does not connect to any other tmux server.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::ffi::OsStr;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::process::{ChildProcess, eventually};

/// The shell's prompt.
const PROMPT: &str = "ready$";

/// A terminal for one test, ended on drop.
#[derive(Debug)]
pub struct TmuxSession {
    _server: ChildProcess,
    folder: TempDir,
}

impl TmuxSession {
    /// Starts a terminal of the given size with a shell, and waits for its prompt.
    ///
    /// # Panics
    /// If it does not start; the message contains its output.
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

    /// Types text.
    pub fn type_in(&self, text: &str) {
        self.run_tmux(&["send-keys", "-l", "--", text]);
    }

    /// Presses a key by tmux's name for it: `Enter`, `Escape`, `C-c`.
    pub fn press(&self, key: &str) {
        self.run_tmux(&["send-keys", key]);
    }

    /// The current screen, without trailing blanks.
    #[must_use]
    pub fn screen(&self) -> String {
        self.run_tmux(&["capture-pane", "-p"])
    }

    /// The value of a tmux format variable: `cursor_flag`, `alternate_on`, `pane_title`.
    #[must_use]
    pub fn format_value(&self, format: &str) -> String {
        self.run_tmux(&["display-message", "-p", &format!("#{{{format}}}")]).trim_end().to_owned()
    }

    /// Resizes the terminal.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.run_tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// Waits until a text is on the screen.
    ///
    /// # Panics
    /// If it does not appear; the message contains the screen.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen satisfies a condition, and returns it.
    ///
    /// # Panics
    /// If that does not happen; the message contains the screen.
    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let found = crate::process::poll_until(crate::process::WAIT_TIMEOUT, || {
            screen = self.screen();
            condition(&screen).then_some(())
        });
        assert!(found.is_some(), "timed out waiting for {what}; screen:\n{screen}");
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
        command.env_remove("TMUX").output().expect("tmux is missing: run `cargo xtask setup`")
    }
}

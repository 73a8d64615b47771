//! Runs a command at a pseudo-terminal (with `script`), so that it prompts and the test answers.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::AdminCliFixture;
use crate::support::{tidegate_command, wait_for};

/// A command whose stdin and stdout are a terminal.
pub struct PseudoTerminal {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl PseudoTerminal {
    pub fn run(fixture: &AdminCliFixture, args: &[&str]) -> Self {
        let program = tidegate_command();
        let quoted = |word: &str| format!("'{word}'");
        let line: Vec<String> = [program.get_program().to_str().unwrap()]
            .iter()
            .chain(args)
            .map(|word| quoted(word))
            .collect();
        // -q: no messages from `script`; -e: return the command's exit code; -c: the command.
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line.join(" "), "/dev/null"]);
        command.env("TIDEGATE_ADMIN_URL", &fixture.url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (output, mut from) = (Arc::new(Mutex::new(Vec::new())), child.stdout.take().unwrap());
        let into = Arc::clone(&output);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().extend(&bytes[..read]);
            }
        });
        Self { child, output, reader }
    }

    fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until the output contains `words`.
    #[track_caller]
    pub fn wait_for_text(&self, words: &str) {
        wait_for(&format!("`{words}`"), || self.output_text().contains(words).then_some(()));
    }

    pub fn type_in(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the command exits; returns its exit code and all output.
    #[track_caller]
    pub fn wait_for_exit(mut self) -> (Option<i32>, String) {
        let status = wait_for("the command to exit", || self.child.try_wait().unwrap());
        let output = Arc::clone(&self.output);
        self.reader.join().unwrap();
        let text = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        (status.code(), text)
    }
}

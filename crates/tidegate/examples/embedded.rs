//! A limiter inside a plain program, without a runtime: sends each user at most three e-mails per
//! hour, and all users together at most a hundred per minute.
//!
//! ```sh
//! cargo run -p tidegate --example embedded
//! ```

use std::error::Error;
use std::io::{self, Write};

use tidegate::{BuildError, Facts, Limiter};

const RULES: &str = "
rules:
  - { id: per-user, key_by: user_id, limit: 3/h }
  - { id: in-all, key_by: global, limit: 100/min }
";

/// The limiter. Its clones share the counters, so each thread can have one.
pub(crate) fn limiter() -> Result<Limiter, BuildError> {
    Limiter::builder().rules(RULES).memory_bytes(1 << 20).build()
}

/// Sends an e-mail, unless a rule refuses it. A refused one counts on no rule.
pub(crate) fn notify(limiter: &Limiter, user: &str, mut log: impl Write) -> io::Result<()> {
    let decision = limiter.check_now(&Facts::from([("user_id", user)]));
    match decision.tightest() {
        Some((rule, _)) if !decision.is_allowed() => {
            let wait = decision.retry_after().unwrap_or_default();
            writeln!(log, "{user}: not sent because of {}, wait {} s", rule.id(), wait.as_secs())
        }
        _ => writeln!(log, "{user}: sent"),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let limiter = limiter()?;
    for user in ["ada", "ada", "bob", "ada", "ada", "bob"] {
        notify(&limiter, user, io::stdout())?;
    }
    Ok(())
}

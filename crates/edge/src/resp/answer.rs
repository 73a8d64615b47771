//! What a command means: answered at once, or a question for the limiter.

use tidegate_core::store::Store;

use super::Door;
use super::command::{Command, Entry};
use super::frame::Args;
use super::question::Verb;
use super::reply::Writer;
use super::session::Session;
use super::throttle::{Dialect, Throttle};
use super::{client, server};

/// How much of a caller's own text an error repeats, in bytes.
const MAX_REPEATED: usize = 128;

/// What becomes of a command.
pub(super) enum Heard {
    /// It is answered.
    Answered,
    /// It is answered, and nothing more will be.
    Last,
    /// The limiter has to be asked about a bucket.
    Throttle(Throttle),
    /// The rules have to be asked, with the same arguments.
    Rules(Verb),
}

impl<S: Store, L: Store> Door<S, L> {
    /// Answers a command, or says what to ask the limiter.
    pub(super) fn hear(&self, session: &mut Session, args: &Args<'_>, out: &mut Vec<u8>) -> Heard {
        let Some(name) = args.first() else { return Heard::Answered };
        let reply = &mut Writer::new(out, session.version);
        let Some(entry) = Entry::named(name) else {
            reply.error("ERR", &unknown(args));
            return Heard::Answered;
        };
        if !entry.takes(args.len()) {
            wrong_count(reply, entry);
            return Heard::Answered;
        }
        match entry.command {
            Command::ClThrottle => {
                return self.throttle(session, Dialect::Cell, entry, args, reply);
            }
            Command::Throttle => return self.throttle(session, Dialect::Crab, entry, args, reply),
            Command::Check => return Heard::Rules(Verb::Check),
            Command::Peek => return self.guarded(session, Verb::Peek, reply),
            Command::ResetCounters => return self.guarded(session, Verb::Reset, reply),
            Command::Quit => {
                reply.ok();
                return Heard::Last;
            }
            Command::Ping => match args.as_slice() {
                [_] => reply.simple("PONG"),
                [_, message] => reply.bulk(message),
                _ => wrong_count(reply, entry),
            },
            Command::Echo => reply.bulk(&args[1]),
            Command::Hello => self.hello(session, &args[1..], out),
            Command::Auth => self.auth(session, &args[1..], reply),
            Command::Select => server::select(&args[1], reply),
            Command::Client => client::answer(session, &args[1..], reply),
            Command::Table => server::command(&args[1..], reply),
            Command::Info => server::info(&args[1..], reply),
            Command::Config => server::config(&args[1..], reply),
            Command::Reset => {
                reply.simple("RESET");
                session.reset();
            }
        }
        Heard::Answered
    }
}

pub(super) fn wrong_count(reply: &mut Writer<'_>, entry: &Entry) {
    let mut text = format!("wrong number of arguments for '{}' command", entry.name);
    if let Some(usage) = entry.usage {
        text.push_str("; write: ");
        text.push_str(usage);
    }
    reply.error("ERR", &text);
}

/// Clients look for "unknown command" to find out what a server can do; the words are Redis' own.
fn unknown(args: &Args<'_>) -> String {
    let mut text = format!("unknown command '{}', with args beginning with: ", shown(&args[0]));
    for arg in &args[1..] {
        if text.len() > MAX_REPEATED {
            break;
        }
        text.push_str(&format!("'{}' ", shown(arg)));
    }
    text
}

/// A caller's own text, as much of it as is repeated.
pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_REPEATED)]).into_owned()
}

/// A subcommand that is not there, in Redis' words.
pub(super) fn no_subcommand(reply: &mut Writer<'_>, of: &str, name: &[u8]) {
    reply.error("ERR", &format!("unknown subcommand '{}'. Try {of} HELP.", shown(name)));
}

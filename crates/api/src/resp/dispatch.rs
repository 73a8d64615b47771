//! What a command means: answered at once, or a question for the limiter.

use tidegate_core::store::Store;

use super::RespApi;
use super::command_table::{RespCommand, RespCommandSpec};
use super::limiter_query::RespRuleAction;
use super::reply_writer::ReplyWriter;
use super::request_parser::RespArgs;
use super::session::RespSession;
use super::throttle::{ThrottleDialect, ThrottleRequest};
use super::{client_command, server_commands};

/// How much of a caller's own text an error repeats, in bytes.
const MAX_ECHOED_BYTES: usize = 128;

/// What becomes of a command.
pub(super) enum CommandDispatch {
    /// It is answered.
    Replied,
    /// It is answered, and nothing more will be.
    Close,
    /// The limiter has to be asked about a bucket.
    Throttle(ThrottleRequest),
    /// The rules have to be asked, with the same arguments.
    Rules(RespRuleAction),
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Answers a command, or says what to ask the limiter.
    pub(super) fn dispatch(
        &self,
        session: &mut RespSession,
        args: &RespArgs<'_>,
        out: &mut Vec<u8>,
    ) -> CommandDispatch {
        let Some(name) = args.first() else { return CommandDispatch::Replied };
        let reply = &mut ReplyWriter::new(out, session.version);
        let Some(entry) = RespCommandSpec::find_by_name(name) else {
            reply.error("ERR", &unknown_command_text(args));
            return CommandDispatch::Replied;
        };
        if !entry.accepts_arity(args.len()) {
            write_arity_error(reply, entry);
            return CommandDispatch::Replied;
        }
        match entry.command {
            RespCommand::ClThrottle => {
                return self.parse_throttle(
                    session,
                    ThrottleDialect::RedisCell,
                    entry,
                    args,
                    reply,
                );
            }
            RespCommand::Throttle => {
                return self.parse_throttle(
                    session,
                    ThrottleDialect::Throttlecrab,
                    entry,
                    args,
                    reply,
                );
            }
            RespCommand::Check => return CommandDispatch::Rules(RespRuleAction::Check),
            RespCommand::Peek => {
                return self.authorize_rule_command(session, RespRuleAction::Peek, reply);
            }
            RespCommand::ResetCounters => {
                return self.authorize_rule_command(session, RespRuleAction::Reset, reply);
            }
            RespCommand::Quit => {
                reply.ok();
                return CommandDispatch::Close;
            }
            RespCommand::Ping => match args.as_slice() {
                [_] => reply.simple("PONG"),
                [_, message] => reply.bulk(message),
                _ => write_arity_error(reply, entry),
            },
            RespCommand::Echo => reply.bulk(&args[1]),
            RespCommand::Hello => self.hello(session, &args[1..], out),
            RespCommand::Auth => self.auth(session, &args[1..], reply),
            RespCommand::Select => server_commands::handle_select(&args[1], reply),
            RespCommand::Client => client_command::handle_client(session, &args[1..], reply),
            RespCommand::Command => server_commands::handle_command(&args[1..], reply),
            RespCommand::Info => server_commands::handle_info(&args[1..], reply),
            RespCommand::Config => server_commands::handle_config(&args[1..], reply),
            RespCommand::Reset => {
                reply.simple("RESET");
                session.reset();
            }
        }
        CommandDispatch::Replied
    }
}

pub(super) fn write_arity_error(reply: &mut ReplyWriter<'_>, entry: &RespCommandSpec) {
    let mut text = format!("wrong number of arguments for '{}' command", entry.name);
    if let Some(usage) = entry.usage {
        text.push_str("; write: ");
        text.push_str(usage);
    }
    reply.error("ERR", &text);
}

/// Clients look for "unknown command" to find out what a server can do; the words are Redis' own.
fn unknown_command_text(args: &RespArgs<'_>) -> String {
    let mut text =
        format!("unknown command '{}', with args beginning with: ", truncated_text(&args[0]));
    for arg in &args[1..] {
        if text.len() > MAX_ECHOED_BYTES {
            break;
        }
        text.push_str(&format!("'{}' ", truncated_text(arg)));
    }
    text
}

/// A caller's own text, as much of it as is repeated.
pub(super) fn truncated_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_ECHOED_BYTES)]).into_owned()
}

/// A subcommand that is not there, in Redis' words.
pub(super) fn write_unknown_subcommand(reply: &mut ReplyWriter<'_>, of: &str, name: &[u8]) {
    reply.error("ERR", &format!("unknown subcommand '{}'. Try {of} HELP.", truncated_text(name)));
}

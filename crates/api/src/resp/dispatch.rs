//! Dispatches a command: replies at once, or returns the query that the limiter must answer.

use tidegate_core::store::Store;

use super::RespApi;
use super::command_table::{RespCommand, RespCommandSpec};
use super::limiter_query::RespRuleAction;
use super::reply_writer::ReplyWriter;
use super::request_parser::RespArgs;
use super::session::RespSession;
use super::throttle::{ThrottleDialect, ThrottleRequest};
use super::{client_command, server_commands};

/// How many bytes of the client's input an error message repeats.
const MAX_ECHOED_BYTES: usize = 128;

/// Result of dispatching a command.
pub(super) enum CommandDispatch {
    /// The reply is written.
    Replied,
    /// The reply is written, and the connection must be closed.
    Close,
    /// The limiter must charge or refund a bucket.
    Throttle(ThrottleRequest),
    /// The rules must decide, from the same arguments.
    Rules(RespRuleAction),
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Replies to a command, or returns the query for the limiter.
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
        text.push_str("; usage: ");
        text.push_str(usage);
    }
    reply.error("ERR", &text);
}

/// Error text for an unknown command. It equals Redis' text, because clients search it for "unknown
/// command" to detect what a server supports.
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

/// Converts the client's input to text for an error message, shortened to [`MAX_ECHOED_BYTES`].
pub(super) fn truncated_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_ECHOED_BYTES)]).into_owned()
}

/// Writes Redis' error for an unknown subcommand, without its advice to try `HELP`, which is not
/// implemented.
pub(super) fn write_unknown_subcommand(reply: &mut ReplyWriter<'_>, command: &str, name: &[u8]) {
    let name = truncated_text(name);
    reply.error("ERR", &format!("unknown subcommand '{name}' of {command}"));
}

//! `HELLO` and `AUTH`: protocol version and authentication.

use std::borrow::Cow;

use tidegate_core::store::Store;

use super::RespApi;
use super::client_command::set_name;
use super::dispatch::truncated_text;
use super::reply_writer::{ReplyWriter, RespVersion};
use super::server_commands::{REDIS_VERSION, SERVER_NAME};
use super::session::RespSession;

/// The name of the only user.
const USER: &[u8] = b"default";

/// Code and message of an error.
type RespCommandError = (&'static str, String);

/// Arguments of `HELLO`.
#[derive(Default)]
struct HelloOptions<'a> {
    version: Option<RespVersion>,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<S: Store, L: Store> RespApi<S, L> {
    /// Handles `HELLO [protover [AUTH user password] [SETNAME name]]`. The reply already uses the
    /// new version.
    pub(super) fn hello(
        &self,
        session: &mut RespSession,
        args: &[Cow<'_, [u8]>],
        out: &mut Vec<u8>,
    ) {
        let done = HelloOptions::parse(args).and_then(|hello| {
            if let Some((user, password)) = hello.credentials {
                self.authenticate(session, user, password)?;
            }
            if let Some(name) = hello.name {
                set_name(session, name)?;
            }
            session.version = hello.version.unwrap_or(session.version);
            Ok(())
        });
        let reply = &mut ReplyWriter::new(out, session.version);
        match done {
            Ok(()) => write_server_info(session, reply),
            Err((code, why)) => reply.error(code, &why),
        }
    }

    /// Handles `AUTH [user] password`.
    pub(super) fn auth(
        &self,
        session: &mut RespSession,
        args: &[Cow<'_, [u8]>],
        reply: &mut ReplyWriter<'_>,
    ) {
        let done = match args {
            [password] => self.authenticate(session, USER, password),
            [user, password] => self.authenticate(session, user, password),
            _ => Err(("ERR", "syntax error".to_owned())),
        };
        match done {
            Ok(()) => reply.ok(),
            Err((code, why)) => reply.error(code, &why),
        }
    }

    fn authenticate(
        &self,
        session: &mut RespSession,
        user: &[u8],
        password: &[u8],
    ) -> Result<(), RespCommandError> {
        let Some(token) = &self.token else {
            let why = "AUTH called without any password configured; leave it out, or start \
                       tidegate with --admin-token-file FILE";
            return Err(("ERR", why.to_owned()));
        };
        // Compare both even if the user is unknown, so that the timing reveals nothing.
        let (known, matches) = (user == USER, token.matches(password));
        if !(known && matches) {
            let why = "invalid username-password pair or user is disabled.";
            return Err(("WRONGPASS", why.to_owned()));
        }
        session.authenticated = true;
        Ok(())
    }
}

impl<'a> HelloOptions<'a> {
    fn parse(args: &'a [Cow<'_, [u8]>]) -> Result<Self, RespCommandError> {
        let mut hello = Self::default();
        let Some((version, mut rest)) = args.split_first() else { return Ok(hello) };
        hello.version = Some(match &**version {
            b"2" => RespVersion::Resp2,
            b"3" => RespVersion::Resp3,
            other if other.is_empty() || !other.iter().all(u8::is_ascii_digit) => {
                let why = "Protocol version is not an integer or out of range";
                return Err(("ERR", why.to_owned()));
            }
            _ => return Err(("NOPROTO", "unsupported protocol version".to_owned())),
        });
        while let [option, more @ ..] = rest {
            match (option.to_ascii_uppercase().as_slice(), more) {
                (b"AUTH", [user, password, left @ ..]) => {
                    hello.credentials = Some((user, password));
                    rest = left;
                }
                (b"SETNAME", [name, left @ ..]) => {
                    hello.name = Some(name);
                    rest = left;
                }
                _ => {
                    let why = format!("Syntax error in HELLO option '{}'", truncated_text(option));
                    return Err(("ERR", why));
                }
            }
        }
        Ok(hello)
    }
}

/// Writes the reply to `HELLO`. Some clients disconnect unless the server is named `redis`.
fn write_server_info(session: &RespSession, reply: &mut ReplyWriter<'_>) {
    reply.map(7);
    reply.text("server");
    reply.text(SERVER_NAME);
    reply.text("version");
    reply.text(REDIS_VERSION);
    reply.text("proto");
    reply.integer(match session.version {
        RespVersion::Resp2 => 2,
        RespVersion::Resp3 => 3,
    });
    reply.text("id");
    reply.count(session.id);
    reply.text("mode");
    reply.text("standalone");
    reply.text("role");
    reply.text("master");
    reply.text("modules");
    reply.array(0);
}

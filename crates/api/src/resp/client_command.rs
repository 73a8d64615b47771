//! The `CLIENT` command: libraries use it to name and inspect their connection.

use std::borrow::Cow;

use super::dispatch::write_unknown_subcommand;
use super::reply_writer::{ReplyWriter, RespVersion};
use super::session::RespSession;

/// Maximum length of a connection's name.
const MAX_NAME_BYTES: usize = 256;

/// Handles `CLIENT`. `args` starts with the subcommand.
pub(super) fn handle_client(
    session: &mut RespSession,
    args: &[Cow<'_, [u8]>],
    reply: &mut ReplyWriter<'_>,
) {
    let [subcommand, rest @ ..] = args else { return };
    match (subcommand.to_ascii_uppercase().as_slice(), rest) {
        // Accepted but not stored, because no log or command reports it.
        (b"SETINFO", [what, value]) => set_info(what, value, reply),
        (b"SETNAME", [name]) => match set_name(session, name) {
            Ok(()) => reply.ok(),
            Err((code, why)) => reply.error(code, &why),
        },
        (b"GETNAME", []) if session.name.is_empty() => reply.null(),
        (b"GETNAME", []) => reply.bulk(&session.name),
        (b"ID", []) => reply.count(session.id),
        (b"INFO", []) => reply.text(&client_info(session)),
        // These have no effect: the server has no keys to evict or touch.
        (b"NO-EVICT" | b"NO-TOUCH", [switch]) if is_switch(switch) => reply.ok(),
        _ => write_unknown_subcommand(reply, "CLIENT", subcommand),
    }
}

/// Names the connection; an empty name removes it.
pub(super) fn set_name(
    session: &mut RespSession,
    name: &[u8],
) -> Result<(), (&'static str, String)> {
    if name.len() > MAX_NAME_BYTES || !is_word(name) {
        let why = "Client names cannot contain spaces, newlines or special characters.";
        return Err(("ERR", why.to_owned()));
    }
    session.name = name.to_vec();
    Ok(())
}

fn set_info(what: &[u8], value: &[u8], reply: &mut ReplyWriter<'_>) {
    let known = what.eq_ignore_ascii_case(b"LIB-NAME") || what.eq_ignore_ascii_case(b"LIB-VER");
    if !known {
        reply.error("ERR", "Unrecognized option; use LIB-NAME or LIB-VER");
    } else if !is_word(value) {
        reply.error("ERR", "the value cannot contain spaces, newlines or special characters.");
    } else {
        reply.ok();
    }
}

fn is_word(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_graphic)
}

fn is_switch(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ON") || word.eq_ignore_ascii_case(b"OFF")
}

fn client_info(session: &RespSession) -> String {
    let version = match session.version {
        RespVersion::Resp2 => 2,
        RespVersion::Resp3 => 3,
    };
    let RespSession { id, caller, name, .. } = session;
    let name = String::from_utf8_lossy(name);
    format!("id={id} addr={caller} name={name} db=0 user=default resp={version}\n")
}

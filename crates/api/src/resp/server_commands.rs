//! What clients ask about the server: `INFO`, `COMMAND`, `CONFIG GET`, `SELECT`.

use std::borrow::Cow;

use super::command_table::{COMMANDS, RespCommandSpec};
use super::dispatch::write_unknown_subcommand;
use super::reply_writer::ReplyWriter;

/// Clients look at the name and the version to know what they may ask.
pub(super) const SERVER_NAME: &str = "redis";
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// What `CONFIG GET` knows. redis-benchmark asks for the first two.
const CONFIG: [(&str, &str); 3] = [("save", ""), ("appendonly", "no"), ("databases", "1")];

/// `INFO [section …]`. Clients wait until `loading` is 0.
pub(super) fn handle_info(sections: &[Cow<'_, [u8]>], reply: &mut ReplyWriter<'_>) {
    let parts = [
        (
            "Server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\n\
                 tidegate_version:{}\r\nprocess_id:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::process::id()
            ),
        ),
        ("Persistence", "loading:0\r\n".to_owned()),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("Cluster", "cluster_enabled:0\r\n".to_owned()),
    ];
    let named = |name: &str| {
        let all = ["all", "default", "everything"];
        let is =
            |section: &Cow<'_, [u8]>, name: &str| section.eq_ignore_ascii_case(name.as_bytes());
        sections.is_empty()
            || sections.iter().any(|asked| is(asked, name) || all.iter().any(|all| is(asked, all)))
    };
    let told: Vec<String> = parts
        .iter()
        .filter(|(name, _)| named(name))
        .map(|(name, text)| format!("# {name}\r\n{text}"))
        .collect();
    reply.text(&told.join("\r\n"));
}

/// `COMMAND [COUNT | LIST | INFO name … | DOCS]`.
pub(super) fn handle_command(args: &[Cow<'_, [u8]>], reply: &mut ReplyWriter<'_>) {
    let [subcommand, names @ ..] = args else {
        reply.array(COMMANDS.len());
        return COMMANDS.iter().for_each(|entry| write_command_spec(entry, reply));
    };
    match (subcommand.to_ascii_uppercase().as_slice(), names) {
        (b"COUNT", []) => reply.count(COMMANDS.len() as u64),
        (b"LIST", []) => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|entry| reply.text(entry.name));
        }
        (b"INFO", []) => handle_command(&[], reply),
        (b"INFO", names) => {
            reply.array(names.len());
            for name in names {
                match RespCommandSpec::find_by_name(name) {
                    Some(entry) => write_command_spec(entry, reply),
                    None => reply.null(),
                }
            }
        }
        // It would be hints while typing in redis-cli; the usage is in the errors and the docs.
        (b"DOCS", _) => reply.map(0),
        _ => write_unknown_subcommand(reply, "COMMAND", subcommand),
    }
}

/// Name, number of arguments, flags, first key, last key, step.
fn write_command_spec(entry: &RespCommandSpec, reply: &mut ReplyWriter<'_>) {
    let key = i64::from(entry.has_key);
    reply.array(6);
    reply.text(entry.name);
    reply.integer(entry.arity.into());
    reply.array(1);
    reply.simple("fast");
    (0..3).for_each(|_| reply.integer(key));
}

/// `CONFIG GET name …`; nothing can be set.
pub(super) fn handle_config(args: &[Cow<'_, [u8]>], reply: &mut ReplyWriter<'_>) {
    let [subcommand, names @ ..] = args else { return };
    if !subcommand.eq_ignore_ascii_case(b"GET") || names.is_empty() {
        return write_unknown_subcommand(reply, "CONFIG", subcommand);
    }
    let asked = |name: &str| {
        names.iter().any(|asked| **asked == *b"*" || asked.eq_ignore_ascii_case(name.as_bytes()))
    };
    let known = || CONFIG.iter().filter(|(name, _)| asked(name));
    reply.map(known().count());
    for (name, value) in known() {
        reply.text(name);
        reply.text(value);
    }
}

/// `SELECT index`: there is one database.
pub(super) fn handle_select(index: &[u8], reply: &mut ReplyWriter<'_>) {
    match std::str::from_utf8(index).ok().and_then(|text| text.parse::<i64>().ok()) {
        Some(0) => reply.ok(),
        Some(_) => reply.error("ERR", "DB index is out of range"),
        None => reply.error("ERR", "value is not an integer or out of range"),
    }
}

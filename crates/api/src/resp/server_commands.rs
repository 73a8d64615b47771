//! Commands about the server, which clients send on connect: `INFO`, `COMMAND`, `CONFIG GET` and
//! `SELECT`.

use std::borrow::Cow;

use super::command_table::{COMMANDS, RespCommandSpec};
use super::dispatch::write_unknown_subcommand;
use super::reply_writer::ReplyWriter;

/// Name and version that the server reports. Clients derive from them which commands they may send.
pub(super) const SERVER_NAME: &str = "redis";
pub(super) const REDIS_VERSION: &str = "7.4.0";

/// Settings that `CONFIG GET` returns. redis-benchmark reads the first two.
const CONFIG: [(&str, &str); 3] = [("save", ""), ("appendonly", "no"), ("databases", "1")];

/// Handles `INFO [section …]`. Clients wait until `loading` is 0.
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
    let is_requested = |name: &str| {
        let all = ["all", "default", "everything"];
        let is =
            |section: &Cow<'_, [u8]>, name: &str| section.eq_ignore_ascii_case(name.as_bytes());
        sections.is_empty()
            || sections
                .iter()
                .any(|section| is(section, name) || all.iter().any(|all| is(section, all)))
    };
    let texts: Vec<String> = parts
        .iter()
        .filter(|(name, _)| is_requested(name))
        .map(|(name, text)| format!("# {name}\r\n{text}"))
        .collect();
    reply.text(&texts.join("\r\n"));
}

/// Handles `COMMAND [COUNT | LIST | INFO name … | DOCS]`.
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
        // redis-cli uses this only for hints while typing. Errors and the docs describe the usage.
        (b"DOCS", _) => reply.map(0),
        _ => write_unknown_subcommand(reply, "COMMAND", subcommand),
    }
}

/// Writes name, arity, flags, first key, last key and key step of a command.
fn write_command_spec(entry: &RespCommandSpec, reply: &mut ReplyWriter<'_>) {
    let key = i64::from(entry.has_key);
    reply.array(6);
    reply.text(entry.name);
    reply.integer(entry.arity.into());
    reply.array(1);
    reply.simple("fast");
    (0..3).for_each(|_| reply.integer(key));
}

/// Handles `CONFIG GET name …`. No setting can be changed.
pub(super) fn handle_config(args: &[Cow<'_, [u8]>], reply: &mut ReplyWriter<'_>) {
    let [subcommand, names @ ..] = args else { return };
    if !subcommand.eq_ignore_ascii_case(b"GET") || names.is_empty() {
        return write_unknown_subcommand(reply, "CONFIG", subcommand);
    }
    let is_requested = |name: &str| {
        names.iter().any(|given| **given == *b"*" || given.eq_ignore_ascii_case(name.as_bytes()))
    };
    let known = || CONFIG.iter().filter(|(name, _)| is_requested(name));
    reply.map(known().count());
    for (name, value) in known() {
        reply.text(name);
        reply.text(value);
    }
}

/// Handles `SELECT index`. The only database is 0.
pub(super) fn handle_select(index: &[u8], reply: &mut ReplyWriter<'_>) {
    match std::str::from_utf8(index).ok().and_then(|text| text.parse::<i64>().ok()) {
        Some(0) => reply.ok(),
        Some(_) => reply.error("ERR", "DB index is out of range"),
        None => reply.error("ERR", "value is not an integer or out of range"),
    }
}

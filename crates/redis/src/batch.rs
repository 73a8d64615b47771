//! Encodes several requests as one call of the script: its keys, arguments and record indexes.

mod encoder;
mod key_table;
mod policy_table;

use std::sync::Arc;

use redis::Cmd;
use smallvec::SmallVec;
use tidegate_core::time::Timestamp;

use crate::lua_script::LuaScript;
use crate::script_request::ScriptRequest;
use encoder::BatchEncoder;
use key_table::{KeyPage, KeyTable};

pub(crate) use key_table::{ChargeIndexes, RecordIndex};

/// Several requests encoded as one call of the script.
#[derive(Debug)]
pub(crate) struct ScriptBatch<'a> {
    pages: Vec<KeyPage<'a>>,
    policies: Vec<u8>,
    requests: Vec<u8>,
    shapes: Vec<u8>,
    /// The record indexes of each request's charges.
    pub(crate) charge_indexes: Vec<SmallVec<[ChargeIndexes; 2]>>,
}

impl<'a> ScriptBatch<'a> {
    /// Encodes requests in the given order.
    pub(crate) fn new(requests: &'a [Arc<ScriptRequest>]) -> Self {
        let mut keys = KeyTable::default();
        let charge_indexes: Vec<SmallVec<[ChargeIndexes; 2]>> = requests
            .iter()
            .enumerate()
            .map(|(number, request)| keys.index_request(request, number))
            .collect();
        let mut encoder = BatchEncoder {
            requests: Vec::with_capacity(18 * requests.len()),
            ..BatchEncoder::default()
        };
        for (request, indexes) in requests.iter().zip(&charge_indexes) {
            encoder.encode_request(request, indexes, &keys);
        }
        let BatchEncoder { requests, policies, shapes } = encoder;
        let (policies, shapes) = (policies.bytes, shapes.bytes);
        Self { pages: keys.pages, policies, requests, shapes, charge_indexes }
    }

    /// The call, by hash (EVALSHA) or with the whole text (EVAL).
    pub(crate) fn command(&self, script: &LuaScript, whole: bool, now: Option<Timestamp>) -> Cmd {
        let mut command = Cmd::new();
        if whole {
            command.arg("EVAL").arg(&script.text);
        } else {
            command.arg("EVALSHA").arg(&script.sha);
        }
        command.arg(self.pages.len());
        for page in &self.pages {
            command.arg(page.name);
        }
        command.arg(&self.policies).arg(&self.requests).arg(&self.shapes);
        if let Some(now) = now {
            command.arg(now.as_micros());
        }
        command
    }
}

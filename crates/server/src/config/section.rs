//! The `server:` section of a rules document, read with the document's own reader, so that its
//! mistakes are told together with those of the rules.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use tidegate_rules::decode::Field;
use tidegate_rules::problem::Remark;

use super::admin::AdminLayer;
use super::gateway::GatewayLayer;
use super::grpc::GrpcLayer;
use super::headers::HeaderLayer;
use super::resp::RespLayer;
use super::store::StoreLayer;
use super::traces::TraceLayer;
use super::value::Wrong;
use super::{Layer, MOST_THREADS};

/// Reads the section; a missing one says nothing.
pub(crate) fn read(field: Option<&Field<'_>>) -> Layer {
    let Some(mut fields) = field.and_then(Field::fields) else {
        return Layer::default();
    };
    let layer = Layer {
        gateway: GatewayLayer::read(&mut fields),
        store: StoreLayer::read(&mut fields),
        headers: HeaderLayer::read(&mut fields),
        grpc: GrpcLayer::read(&mut fields),
        http: fields.take("http").and_then(|field| parsed(&field)),
        resp: RespLayer::read(&mut fields),
        socket_mode: fields.take("socket_mode").and_then(|field| parsed(&field)),
        door_threads: fields.take("door_threads").and_then(|field| threads(&field)),
        snapshot: fields.take("snapshot").and_then(|field| path(&field)),
        snapshot_interval: fields.take("snapshot_interval").and_then(|field| field.duration()),
        memory_limit: fields.take("memory_limit").and_then(|field| parsed(&field)),
        key_secret_file: fields.take("key_secret_file").and_then(|field| path(&field)),
        admin: AdminLayer::read(&mut fields),
        drain_timeout: fields.take("drain_timeout").and_then(|field| field.duration()),
        log: fields.take("log").and_then(|field| choice(&field)),
        log_level: fields.take("log_level").and_then(|field| choice(&field)),
        traces: TraceLayer::read(&mut fields),
        log_violations: fields.take("log_violations").and_then(|field| count(&field)),
    };
    fields.finish();
    layer
}

pub(super) fn threads(field: &Field<'_>) -> Option<u16> {
    field.integer(1, MOST_THREADS.into()).and_then(|count| count.try_into().ok())
}

fn count(field: &Field<'_>) -> Option<u32> {
    field.integer(0, u32::MAX.into()).and_then(|count| count.try_into().ok())
}

pub(super) fn path(field: &Field<'_>) -> Option<PathBuf> {
    field.word().map(PathBuf::from)
}

pub(super) fn parsed<T: FromStr<Err = Wrong>>(field: &Field<'_>) -> Option<T> {
    let text = field.word()?;
    let remark = |wrong: Wrong| Remark::new(wrong.message).found(text).write(wrong.write);
    field.accept(text.parse().map_err(remark))
}

/// One of the words that the flag knows.
pub(super) fn choice<T: ValueEnum + Copy>(field: &Field<'_>) -> Option<T> {
    let names: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
    let choices: Vec<(&str, T)> = names
        .iter()
        .zip(T::value_variants())
        .map(|(name, value)| (name.get_name(), *value))
        .collect();
    field.choice(&choices)
}

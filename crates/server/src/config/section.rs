//! The `server:` section of a rules document. The document's own decoder reads it, so that its
//! errors are reported together with those of the rules.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use tidegate_rules::decode::Field;
use tidegate_rules::diagnostic::FieldError;

use super::admin::PartialAdminSettings;
use super::gateway::PartialGatewaySettings;
use super::grpc::PartialGrpcSettings;
use super::headers::PartialHeaderSettings;
use super::region_stores::PartialRegionStores;
use super::resp::PartialRespSettings;
use super::store::PartialStoreSettings;
use super::traces::PartialTraceSettings;
use super::value::{self, ValueError};
use super::{MAX_THREADS, PartialSettings};

/// Reads the section; a missing section sets nothing.
pub(crate) fn read_section(field: Option<&Field<'_>>) -> PartialSettings {
    let Some(mut fields) = field.and_then(Field::fields) else {
        return PartialSettings::default();
    };
    let layer = PartialSettings {
        gateway: PartialGatewaySettings::read(&mut fields),
        store: PartialStoreSettings::read(&mut fields),
        region_stores: PartialRegionStores::read(&mut fields),
        headers: PartialHeaderSettings::read(&mut fields),
        grpc: PartialGrpcSettings::read(&mut fields),
        region: fields.take("region").and_then(|field| read_region(&field)),
        http: fields.take("http").and_then(|field| read_parsed(&field)),
        resp: PartialRespSettings::read(&mut fields),
        socket_mode: fields.take("socket_mode").and_then(|field| read_parsed(&field)),
        api_threads: fields.take("api_threads").and_then(|field| read_threads(&field)),
        snapshot: fields.take("snapshot").and_then(|field| read_path(&field)),
        snapshot_interval: fields.take("snapshot_interval").and_then(|field| field.duration()),
        memory_limit: fields.take("memory_limit").and_then(|field| read_parsed(&field)),
        key_secret_file: fields.take("key_secret_file").and_then(|field| read_path(&field)),
        admin: PartialAdminSettings::read(&mut fields),
        drain_timeout: fields.take("drain_timeout").and_then(|field| field.duration()),
        log: fields.take("log").and_then(|field| read_choice(&field)),
        log_level: fields.take("log_level").and_then(|field| read_choice(&field)),
        traces: PartialTraceSettings::read(&mut fields),
        log_violations: fields.take("log_violations").and_then(|field| read_count(&field)),
        log_paths: fields.take("log_paths").and_then(|field| field.boolean()),
    };
    fields.finish();
    layer
}

pub(super) fn read_threads(field: &Field<'_>) -> Option<u16> {
    field.integer(1, MAX_THREADS.into()).and_then(|count| count.try_into().ok())
}

fn read_count(field: &Field<'_>) -> Option<u32> {
    field.integer(0, u32::MAX.into()).and_then(|count| count.try_into().ok())
}

fn read_region(field: &Field<'_>) -> Option<String> {
    read_with(field, value::parse_region)
}

fn read_with<T>(field: &Field<'_>, parse: impl FnOnce(&str) -> Result<T, ValueError>) -> Option<T> {
    let text = field.non_empty_text()?;
    let remark =
        |error: ValueError| FieldError::new(error.message).with_found(text).with_hint(error.hint);
    field.ok_or_report(parse(text).map_err(remark))
}

pub(super) fn read_path(field: &Field<'_>) -> Option<PathBuf> {
    field.non_empty_text().map(PathBuf::from)
}

pub(super) fn read_parsed<T: FromStr<Err = ValueError>>(field: &Field<'_>) -> Option<T> {
    read_with(field, str::parse)
}

/// Reads one of the values that the corresponding flag accepts.
pub(super) fn read_choice<T: ValueEnum + Copy>(field: &Field<'_>) -> Option<T> {
    let names: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
    let choices: Vec<(&str, T)> = names
        .iter()
        .zip(T::value_variants())
        .map(|(name, value)| (name.get_name(), *value))
        .collect();
    field.choice(&choices)
}

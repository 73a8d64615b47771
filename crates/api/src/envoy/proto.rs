//! Protobuf encoding of requests and responses. Unknown fields and fields of the wrong wire type
//! are skipped.

use std::borrow::Cow;

use tidegate_rules::DescriptorPair;

use super::request::{
    EnvoyDescriptor, EnvoyLimitOverride, EnvoyRequest, EnvoyRequestError, MAX_DESCRIPTORS,
    MAX_ENTRIES,
};
use super::response::{CurrentLimit, DescriptorStatus, EnvoyResponse};
use tidegate_web::protobuf::{ProtoDecodeError, ProtoReader, ProtoWriter, WireValue};

/// Initial capacity: enough for a response with a few statuses.
const USUAL_BYTES: usize = 128;

/// Reads and validates a `RateLimitRequest`. Lists are truncated at one element past the maximum:
/// enough for validation to reject the request, without storing the excess.
pub(crate) fn read_request(message: &[u8]) -> Result<EnvoyRequest<'_>, EnvoyRequestError> {
    let call =
        read_unvalidated(message).map_err(|ProtoDecodeError| EnvoyRequestError::Malformed)?;
    call.validate()?;
    Ok(call)
}

pub(super) fn read_unvalidated(message: &[u8]) -> Result<EnvoyRequest<'_>, ProtoDecodeError> {
    let (mut call, mut reader) = (EnvoyRequest::default(), ProtoReader::new(message));
    let mut room = MAX_ENTRIES + 1;
    while let Some(field) = reader.next_field()? {
        match field {
            (1, WireValue::Bytes(domain)) => call.domain = lossy_text(domain),
            (2, WireValue::Bytes(bytes)) if call.descriptors.len() <= MAX_DESCRIPTORS => {
                let descriptor = read_descriptor(bytes, room)?;
                room -= descriptor.entries.len();
                call.descriptors.push(descriptor);
            }
            (3, WireValue::Number(hits)) => call.hits_addend = truncate_to_u32(hits),
            _ => {}
        }
    }
    Ok(call)
}

/// Reads a descriptor and keeps at most `room` of its entries.
fn read_descriptor(message: &[u8], room: usize) -> Result<EnvoyDescriptor<'_>, ProtoDecodeError> {
    let (mut descriptor, mut reader) = (EnvoyDescriptor::default(), ProtoReader::new(message));
    while let Some(field) = reader.next_field()? {
        match field {
            (1, WireValue::Bytes(bytes)) if descriptor.entries.len() < room => {
                descriptor.entries.push(read_entry(bytes)?);
            }
            // Protobuf merges a non-repeated message that occurs more than once.
            (2, WireValue::Bytes(bytes)) => {
                read_override(bytes, descriptor.limit.get_or_insert_default())?;
            }
            (3, WireValue::Bytes(bytes)) => {
                read_uint64_value(bytes, descriptor.hits_addend.get_or_insert_default())?;
            }
            (4, WireValue::Number(truth)) => descriptor.is_negative_hits = truth != 0,
            _ => {}
        }
    }
    Ok(descriptor)
}

fn read_entry(message: &[u8]) -> Result<DescriptorPair<'_>, ProtoDecodeError> {
    let (mut entry, mut reader) = (DescriptorPair::default(), ProtoReader::new(message));
    while let Some(field) = reader.next_field()? {
        match field {
            (1, WireValue::Bytes(key)) => entry.key = lossy_text(key),
            (2, WireValue::Bytes(value)) => entry.value = lossy_text(value),
            _ => {}
        }
    }
    Ok(entry)
}

fn read_override(message: &[u8], into: &mut EnvoyLimitOverride) -> Result<(), ProtoDecodeError> {
    let mut reader = ProtoReader::new(message);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, WireValue::Number(requests)) => into.requests_per_unit = truncate_to_u32(requests),
            (2, WireValue::Number(unit)) => into.unit = unit,
            _ => {}
        }
    }
    Ok(())
}

/// Reads a `google.protobuf.UInt64Value`. Its presence matters even when it is empty.
fn read_uint64_value(message: &[u8], into: &mut u64) -> Result<(), ProtoDecodeError> {
    let mut reader = ProtoReader::new(message);
    while let Some(field) = reader.next_field()? {
        if let (1, WireValue::Number(number)) = field {
            *into = number;
        }
    }
    Ok(())
}

/// Decodes text, replacing invalid UTF-8. Protobuf strings should be UTF-8, but Envoy forwards
/// header values unchanged.
fn lossy_text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Keeps the low 32 bits, as protobuf does for a 32-bit field.
fn truncate_to_u32(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Writes a `RateLimitResponse` after `reserved` bytes, which the caller fills in later.
pub(crate) fn write_response(response: &EnvoyResponse<'_>, reserved: usize) -> Vec<u8> {
    let mut writer = ProtoWriter::with_reserved_prefix(reserved, USUAL_BYTES);
    writer.varint_field(1, response.overall_code() as u64);
    for status in &response.statuses {
        writer.message(2, |inner| write_status(status, inner));
    }
    for (name, value) in response.headers() {
        writer.message(3, |inner| {
            inner.bytes(1, name.as_str().as_bytes());
            inner.bytes(2, value.as_bytes());
        });
    }
    writer.finish()
}

fn write_status(status: &DescriptorStatus<'_>, writer: &mut ProtoWriter) {
    writer.varint_field(1, status.code as u64);
    if let Some(CurrentLimit { requests_per_unit, unit, name }) = status.current_limit {
        writer.message(2, |limit| {
            limit.varint_field(1, u64::from(requests_per_unit));
            limit.varint_field(2, unit as u64);
            limit.bytes(3, name.as_bytes());
        });
    }
    writer.varint_field(3, u64::from(status.limit_remaining));
    if let Some(secs) = status.reset_secs {
        writer.message(4, |duration| duration.varint_field(1, secs));
    }
}

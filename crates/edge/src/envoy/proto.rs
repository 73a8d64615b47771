//! Calls and answers in protobuf. A field that is not known, or not of its type, is passed over.

use std::borrow::Cow;

use tidegate_rules::Entry;

use super::answer::{Answer, CurrentLimit, DescriptorStatus};
use super::call::{Call, Descriptor, Invalid, MAX_DESCRIPTORS, MAX_ENTRIES, Override};
use crate::protobuf::{Malformed, Reader, Value, Writer};

/// Room for an answer with a few statuses.
const USUAL_BYTES: usize = 128;

/// Reads a `RateLimitRequest`. Lists are cut off one past what a call may have: what is too much is not kept.
pub(crate) fn read(message: &[u8]) -> Result<Call<'_>, Invalid> {
    let call = read_call(message).map_err(|Malformed| Invalid::Malformed)?;
    call.check()?;
    Ok(call)
}

pub(super) fn read_call(message: &[u8]) -> Result<Call<'_>, Malformed> {
    let (mut call, mut reader) = (Call::default(), Reader::new(message));
    let mut room = MAX_ENTRIES + 1;
    while let Some(field) = reader.field()? {
        match field {
            (1, Value::Bytes(domain)) => call.domain = text(domain),
            (2, Value::Bytes(bytes)) if call.descriptors.len() <= MAX_DESCRIPTORS => {
                let descriptor = read_descriptor(bytes, room)?;
                room -= descriptor.entries.len();
                call.descriptors.push(descriptor);
            }
            (3, Value::Number(hits)) => call.hits_addend = low(hits),
            _ => {}
        }
    }
    Ok(call)
}

/// Reads a descriptor, of which as many entries are kept as there is room for.
fn read_descriptor(message: &[u8], room: usize) -> Result<Descriptor<'_>, Malformed> {
    let (mut descriptor, mut reader) = (Descriptor::default(), Reader::new(message));
    while let Some(field) = reader.field()? {
        match field {
            (1, Value::Bytes(bytes)) if descriptor.entries.len() < room => {
                descriptor.entries.push(read_entry(bytes)?);
            }
            // A message that comes twice is one message with the fields of both.
            (2, Value::Bytes(bytes)) => {
                read_override(bytes, descriptor.limit.get_or_insert_default())?;
            }
            (3, Value::Bytes(bytes)) => {
                read_wrapped(bytes, descriptor.hits_addend.get_or_insert_default())?;
            }
            (4, Value::Number(truth)) => descriptor.is_negative_hits = truth != 0,
            _ => {}
        }
    }
    Ok(descriptor)
}

fn read_entry(message: &[u8]) -> Result<Entry<'_>, Malformed> {
    let (mut entry, mut reader) = (Entry::default(), Reader::new(message));
    while let Some(field) = reader.field()? {
        match field {
            (1, Value::Bytes(key)) => entry.key = text(key),
            (2, Value::Bytes(value)) => entry.value = text(value),
            _ => {}
        }
    }
    Ok(entry)
}

fn read_override(message: &[u8], into: &mut Override) -> Result<(), Malformed> {
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field {
            (1, Value::Number(requests)) => into.requests_per_unit = low(requests),
            (2, Value::Number(unit)) => into.unit = unit,
            _ => {}
        }
    }
    Ok(())
}

/// A `google.protobuf.UInt64Value`: that it is there says something, even if it is empty.
fn read_wrapped(message: &[u8], into: &mut u64) -> Result<(), Malformed> {
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        if let (1, Value::Number(number)) = field {
            *into = number;
        }
    }
    Ok(())
}

/// Text should be UTF-8, but Envoy passes on what headers hold: one that is not is told with what is legible.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// What a field of 32 bits keeps of a number.
fn low(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Writes a `RateLimitResponse` after so many bytes that are filled in later.
pub(crate) fn write(answer: &Answer<'_>, reserved: usize) -> Vec<u8> {
    let mut writer = Writer::after(reserved, USUAL_BYTES);
    writer.number(1, answer.overall_code() as u64);
    for status in &answer.statuses {
        writer.message(2, |inner| write_status(status, inner));
    }
    for (name, value) in answer.headers() {
        writer.message(3, |inner| {
            inner.bytes(1, name.as_str().as_bytes());
            inner.bytes(2, value.as_bytes());
        });
    }
    writer.finish()
}

fn write_status(status: &DescriptorStatus<'_>, writer: &mut Writer) {
    writer.number(1, status.code as u64);
    if let Some(CurrentLimit { requests_per_unit, unit, name }) = status.current_limit {
        writer.message(2, |limit| {
            limit.number(1, u64::from(requests_per_unit));
            limit.number(2, unit as u64);
            limit.bytes(3, name.as_bytes());
        });
    }
    writer.number(3, u64::from(status.limit_remaining));
    if let Some(secs) = status.reset_secs {
        writer.message(4, |duration| duration.number(1, secs));
    }
}

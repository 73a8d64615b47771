//! Version 2: a signature, who is at both ends in binary, and further fields, of which only the
//! checksum matters here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Malformed, Parsed};

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header could say that 64 KiB follow; those in use have a few hundred bytes.
pub(super) const MAX_BYTES: usize = 4 * 1024;

/// Signature, command, family, and the length of the rest.
const FIXED_BYTES: usize = 16;

const CHECKSUM: u8 = 0x03;
const UNIQUE_ID: u8 = 0x05;
const MAX_UNIQUE_ID_BYTES: usize = 128;

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED_BYTES) else {
        return Ok(Parsed::Incomplete);
    };
    let is_local = match fixed[12] {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed::Invalid),
    };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if FIXED_BYTES + length > MAX_BYTES {
        return Err(Malformed::TooLong);
    }
    let Some(body) = rest.get(..length) else {
        return Ok(Parsed::Incomplete);
    };
    let len = FIXED_BYTES + length;
    // The balancer's own connection: what follows is skipped, whatever it is.
    let source = if is_local { None } else { source(fixed[13], body, &bytes[..len])? };
    Ok(Parsed::Complete { len, source })
}

/// Whom a header names, once all of it is checked.
fn source(family: u8, body: &[u8], header: &[u8]) -> Result<Option<SocketAddr>, Malformed> {
    let (source, size) = match family {
        0x00 => return Ok(None),
        0x11 | 0x12 => (ends::<4>(body).map(|(ip, port)| (Ipv4Addr::from(ip).into(), port)), 12),
        0x21 | 0x22 => (ends::<16>(body).map(|(ip, port)| (Ipv6Addr::from(ip).into(), port)), 36),
        0x31 | 0x32 => (None, 216),
        _ => return Err(Malformed::Invalid),
    };
    let fields = body.get(size..).ok_or(Malformed::Invalid)?;
    check(fields, header)?;
    Ok(source.map(|(ip, port): (IpAddr, u16)| SocketAddr::new(ip, port)))
}

/// The source of source, destination and both their ports.
fn ends<const N: usize>(body: &[u8]) -> Option<([u8; N], u16)> {
    let ip = body.first_chunk::<N>()?;
    let port = body.get(2 * N..)?.first_chunk::<2>()?;
    Some((*ip, u16::from_be_bytes(*port)))
}

/// Further fields: a type, a length, a value.
fn check(mut fields: &[u8], header: &[u8]) -> Result<(), Malformed> {
    let mut checksum = None;
    while let Some((head, rest)) = fields.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let (value, after) = rest.split_at_checked(length).ok_or(Malformed::Invalid)?;
        match head[0] {
            UNIQUE_ID if length > MAX_UNIQUE_ID_BYTES => return Err(Malformed::Invalid),
            CHECKSUM => {
                let value = <[u8; 4]>::try_from(value).map_err(|_| Malformed::Invalid)?;
                // The value ends where the rest of the header begins.
                let at = header.len() - after.len() - value.len();
                if checksum.replace((at, u32::from_be_bytes(value))).is_some() {
                    return Err(Malformed::Invalid);
                }
            }
            _ => {}
        }
        fields = after;
    }
    if !fields.is_empty() {
        return Err(Malformed::Invalid);
    }
    match checksum {
        Some((at, told)) if crc32c_without(header, at) != told => Err(Malformed::Checksum),
        _ => Ok(()),
    }
}

/// The checksum of a header, made with zeros in the four bytes where it stands.
fn crc32c_without(header: &[u8], at: usize) -> u32 {
    let stands = at..at + 4;
    let byte = |(index, byte): (usize, &u8)| if stands.contains(&index) { 0 } else { *byte };
    crc32c(header.iter().enumerate().map(byte))
}

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4), bit by bit: a header has few bytes and comes once
/// a connection.
pub(super) fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    !bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (POLYNOMIAL * (sum & 1)))
    })
}

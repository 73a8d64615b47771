//! Version 2: a signature, both endpoints in binary, and type-length-value fields (TLVs). Of the
//! fields, only the checksum is used here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{ProxyHeaderError, ProxyParseStatus};

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The length field allows 64 KiB; headers in use have a few hundred bytes.
pub(super) const MAX_HEADER_BYTES: usize = 4 * 1024;

/// Signature, command, family, and length of the rest.
const FIXED_HEADER_BYTES: usize = 16;

const TLV_CRC32C: u8 = 0x03;
const TLV_UNIQUE_ID: u8 = 0x05;
const MAX_UNIQUE_ID_BYTES: usize = 128;

pub(super) fn parse(bytes: &[u8]) -> Result<ProxyParseStatus, ProxyHeaderError> {
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED_HEADER_BYTES) else {
        return Ok(ProxyParseStatus::Incomplete);
    };
    let is_local = match fixed[12] {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyHeaderError::Invalid),
    };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if FIXED_HEADER_BYTES + length > MAX_HEADER_BYTES {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(body) = rest.get(..length) else {
        return Ok(ProxyParseStatus::Incomplete);
    };
    let len = FIXED_HEADER_BYTES + length;
    // The balancer's own connection (LOCAL): the specification says to ignore the rest.
    let source = if is_local { None } else { parse_source(fixed[13], body, &bytes[..len])? };
    Ok(ProxyParseStatus::Complete { len, source })
}

/// The client named by a header, after checking all of it.
fn parse_source(
    family: u8,
    body: &[u8],
    header: &[u8],
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let (source, size) = match family {
        0x00 => return Ok(None),
        0x11 | 0x12 => (
            parse_source_endpoint::<4>(body).map(|(ip, port)| (Ipv4Addr::from(ip).into(), port)),
            12,
        ),
        0x21 | 0x22 => (
            parse_source_endpoint::<16>(body).map(|(ip, port)| (Ipv6Addr::from(ip).into(), port)),
            36,
        ),
        0x31 | 0x32 => (None, 216),
        _ => return Err(ProxyHeaderError::Invalid),
    };
    let fields = body.get(size..).ok_or(ProxyHeaderError::Invalid)?;
    check_tlvs(fields, header)?;
    Ok(source.map(|(ip, port): (IpAddr, u16)| SocketAddr::new(ip, port)))
}

/// Source address and port. The body holds both addresses, then both ports.
fn parse_source_endpoint<const N: usize>(body: &[u8]) -> Option<([u8; N], u16)> {
    let ip = body.first_chunk::<N>()?;
    let port = body.get(2 * N..)?.first_chunk::<2>()?;
    Some((*ip, u16::from_be_bytes(*port)))
}

/// Checks the type-length-value fields.
fn check_tlvs(mut fields: &[u8], header: &[u8]) -> Result<(), ProxyHeaderError> {
    let mut checksum = None;
    while let Some((head, rest)) = fields.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let (value, after) = rest.split_at_checked(length).ok_or(ProxyHeaderError::Invalid)?;
        match head[0] {
            TLV_UNIQUE_ID if length > MAX_UNIQUE_ID_BYTES => return Err(ProxyHeaderError::Invalid),
            TLV_CRC32C => {
                let value = <[u8; 4]>::try_from(value).map_err(|_| ProxyHeaderError::Invalid)?;
                // The value ends where `after` begins.
                let at = header.len() - after.len() - value.len();
                if checksum.replace((at, u32::from_be_bytes(value))).is_some() {
                    return Err(ProxyHeaderError::Invalid);
                }
            }
            _ => {}
        }
        fields = after;
    }
    if !fields.is_empty() {
        return Err(ProxyHeaderError::Invalid);
    }
    match checksum {
        Some((at, declared)) if crc32c_excluding_checksum(header, at) != declared => {
            Err(ProxyHeaderError::Checksum)
        }
        _ => Ok(()),
    }
}

/// Checksum of a header, computed with zeros in place of the checksum field.
fn crc32c_excluding_checksum(header: &[u8], at: usize) -> u32 {
    let field = at..at + 4;
    let byte = |(index, byte): (usize, &u8)| if field.contains(&index) { 0 } else { *byte };
    crc32c(header.iter().enumerate().map(byte))
}

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4), bit by bit: a header is short and occurs once per
/// connection.
pub(super) fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    !bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (POLYNOMIAL * (sum & 1)))
    })
}

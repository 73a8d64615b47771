//! The little of MessagePack that the script speaks: unsigned numbers below 2^53 and arrays of them.

/// Appends a number.
pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0x7f => out.push(number.to_le_bytes()[0]),
        0x80..=0xff => out.extend([0xcc, number.to_le_bytes()[0]]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend(&number.to_be_bytes()[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend(&number.to_be_bytes()[4..]);
        }
        _ => {
            out.push(0xcf);
            out.extend(number.to_be_bytes());
        }
    }
}

/// Appends the head of an array of so many elements.
pub(crate) fn array(out: &mut Vec<u8>, elements: usize) {
    match u32::try_from(elements).unwrap_or(u32::MAX) {
        few @ 0..=15 => out.push(0x90 | few.to_le_bytes()[0]),
        some @ 16..=0xffff => {
            out.push(0xdc);
            out.extend(&some.to_be_bytes()[2..]);
        }
        many => {
            out.push(0xdd);
            out.extend(many.to_be_bytes());
        }
    }
}

/// The numbers that a state is written as, or nothing if it is something else.
pub(crate) fn numbers<const N: usize>(mut bytes: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (kind, rest) = bytes.split_first()?;
        let length = match kind {
            0..=0x7f => {
                (*number, bytes) = (u64::from(*kind), rest);
                continue;
            }
            // Signed forms too: some servers write a number that fits as one.
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 => 2,
            0xce | 0xd2 => 4,
            0xcf | 0xd3 => 8,
            _ => return None,
        };
        let (digits, rest) = rest.split_at_checked(length)?;
        *number = digits.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        bytes = rest;
    }
    bytes.is_empty().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let edges = (0..=53).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]);
        for edge in edges {
            let mut out = Vec::new();
            number(&mut out, edge);
            number(&mut out, 7);
            assert_eq!(numbers(&out), Some([edge, 7]));
        }
    }

    #[test]
    fn what_is_no_state_is_not_read_as_one() {
        for bytes in [&b""[..], b"\x01", b"\xcf\x00", b"\x01\x02\x03", b"\xa1x", b"\xc0\x01"] {
            assert_eq!(numbers::<2>(bytes), None, "{bytes:?}");
        }
    }
}

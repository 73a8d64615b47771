//! Numbers in hexadecimal, as hashes are shown. Without the formatting machinery, because some are
//! written for every refusal.

use crate::key::Fingerprint;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The sixteen digits of a number.
#[must_use]
pub fn digits(number: u64) -> [u8; 16] {
    let mut left = number;
    [(); 16].map(|()| {
        left = left.rotate_left(4);
        DIGITS[(left & 15) as usize]
    })
}

/// Adds the sixteen digits of a number to a text.
pub fn push(text: &mut String, number: u64) {
    // Digits are text.
    text.push_str(str::from_utf8(&digits(number)).unwrap_or_default());
}

impl Fingerprint {
    /// Its thirty-two digits.
    #[must_use]
    pub fn hex(self) -> String {
        let mut text = String::with_capacity(32);
        push(&mut text, self.hi);
        push(&mut text, self.lo);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_formatting_writes() {
        for shift in 0..64 {
            let (hi, lo) = (0x0123_4567_89ab_cdef >> shift, u64::MAX >> shift);
            assert_eq!(Fingerprint { hi, lo }.hex(), format!("{hi:016x}{lo:016x}"));
        }
    }
}

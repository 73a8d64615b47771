//! Headers as balancers send them, those that break the rules, and the laws of the reader.

use proptest::prelude::*;

use super::v2::crc32c;
use super::*;

const V1: &[u8] = b"PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\r\n";

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

/// A header of version 2.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = v2::SIGNATURE.to_vec();
    bytes.extend_from_slice(&[command, family]);
    bytes.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn tcp4() -> Vec<u8> {
    vec![203, 0, 113, 9, 192, 0, 2, 1, 0xC8, 0x22, 0x01, 0xBB]
}

fn field(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![kind];
    field.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
    field.extend_from_slice(value);
    field
}

/// A header with a good checksum between two other fields.
fn with_checksum() -> Vec<u8> {
    let fields = [tcp4(), field(0x02, b"example.org"), field(0x03, &[0; 4]), field(0x04, b"x")];
    let mut bytes = binary(0x21, 0x11, &fields.concat());
    let at = bytes.len() - 4 - 4;
    let sum = crc32c(bytes.iter().copied());
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn either(bytes: &[u8]) -> Result<Parsed, Malformed> {
    parse(Version::Any, bytes)
}

#[test]
fn lines_of_version_1_are_read() {
    for (line, source) in [
        ("PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\r\n", address("203.0.113.9:51234")),
        ("PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n", address("255.255.255.255:65535")),
        ("PROXY TCP6 2001:db8::9 ::1 1 2\r\n", address("[2001:db8::9]:1")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff::1 what ever 7\r\n", None),
    ] {
        let expected = Parsed::Complete { len: line.len(), source };
        assert_eq!(either(line.as_bytes()), Ok(expected), "{line}");
        let followed = format!("{line}GET / HTTP/1.1\r\n");
        assert_eq!(parse(Version::V1, followed.as_bytes()), Ok(expected), "{line}");
    }
}

#[test]
fn lines_that_break_the_rules_are_refused() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 51234\r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 51234 443 \r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 51234 443 7\r\n",
        "PROXY TCP4  203.0.113.9 192.0.2.1 51234 443\r\n",
        "PROXY  TCP4 203.0.113.9 192.0.2.1 51234 443\r\n",
        "PROXY TCP4\t203.0.113.9 192.0.2.1 51234 443\r\n",
        "PROXY tcp4 203.0.113.9 192.0.2.1 51234 443\r\n",
        "PROXY TCP4 203.0.113.09 192.0.2.1 51234 443\r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 051234 443\r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 +5 443\r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 5 00\r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 65536 443\r\n",
        "PROXY TCP4 2001:db8::9 ::1 1 2\r\n",
        "PROXY TCP6 203.0.113.9 192.0.2.1 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        "PROXY TCP4 203.0.113.9 nobody 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY UDP4 203.0.113.9 192.0.2.1 1 2\r\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\n",
        "PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\r\r\n",
        "PROXY TCP4 203.0.113.9\r192.0.2.1 51234 443\r\n",
    ] {
        assert_eq!(either(line.as_bytes()), Err(Malformed::Invalid), "{line:?}");
    }
    assert_eq!(either(b"PROXY UNKNOWN \xff\r\n"), Err(Malformed::Invalid));
}

#[test]
fn a_line_ends_within_107_bytes() {
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107 - 16));
    assert_eq!(longest.len(), 107);
    assert_eq!(either(longest.as_bytes()), Ok(Parsed::Complete { len: 107, source: None }));
    let longer = longest.replace("\r\n", "x\r\n");
    assert_eq!(either(longer.as_bytes()), Err(Malformed::TooLong));
    assert_eq!(either(&longer.as_bytes()[..106]), Ok(Parsed::Incomplete));
    assert_eq!(either(&longer.as_bytes()[..107]), Err(Malformed::TooLong));
}

#[test]
fn headers_of_version_2_are_read() {
    let tcp6 =
        [&[0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9][..], &[0; 16], &[0, 1, 0, 2]];
    let fields = [field(0x01, b"h2"), field(0x05, &[7; 128]), field(0xE0, b""), field(0x99, b"?")];
    for (header, source) in [
        (binary(0x21, 0x11, &tcp4()), address("203.0.113.9:51234")),
        (binary(0x21, 0x12, &tcp4()), address("203.0.113.9:51234")),
        (binary(0x21, 0x21, &tcp6.concat()), address("[2001:db8::9]:1")),
        (binary(0x21, 0x11, &[tcp4(), fields.concat()].concat()), address("203.0.113.9:51234")),
        (with_checksum(), address("203.0.113.9:51234")),
        (binary(0x21, 0x31, &[0; 216]), None),
        (binary(0x21, 0x00, b""), None),
        (binary(0x21, 0x00, b"whatever"), None),
        (binary(0x20, 0x00, b""), None),
        (binary(0x20, 0x11, &tcp4()), None),
        (binary(0x20, 0xFF, b"whatever"), None),
    ] {
        let expected = Ok(Parsed::Complete { len: header.len(), source });
        assert_eq!(either(&header), expected, "{header:x?}");
        assert_eq!(parse(Version::V2, &[&header[..], b"GET /"].concat()), expected, "{header:x?}");
    }
    let example = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c\
                    \xcb\x00\x71\x09\xc0\x00\x02\x01\xc8\x22\x01\xbb";
    assert_eq!(binary(0x21, 0x11, &tcp4()), example, "as the specification has it");
}

#[test]
fn headers_that_break_the_rules_are_refused() {
    let with = |fields: &[u8]| binary(0x21, 0x11, &[&tcp4(), fields].concat());
    let twice = [field(0x03, &[0; 4]), field(0x03, &[0; 4])].concat();
    for header in [
        binary(0x22, 0x11, &tcp4()),
        binary(0x11, 0x11, &tcp4()),
        binary(0x31, 0x11, &tcp4()),
        binary(0x21, 0x13, &tcp4()),
        binary(0x21, 0x41, &tcp4()),
        binary(0x21, 0x11, &tcp4()[..11]),
        binary(0x21, 0x21, &[0; 35]),
        binary(0x21, 0x31, &[0; 215]),
        with(b"\x01"),
        with(b"\x01\x00"),
        with(b"\x01\x00\x02x"),
        with(&field(0x05, &[0; 129])),
        with(&field(0x03, &[0; 3])),
        with(&twice),
    ] {
        assert_eq!(either(&header), Err(Malformed::Invalid), "{header:x?}");
    }
    let longest = u16::try_from(MAX_BYTES - 16).unwrap();
    let mut header = binary(0x20, 0x00, &vec![0; usize::from(longest)]);
    assert_eq!(either(&header), Ok(Parsed::Complete { len: MAX_BYTES, source: None }));
    header[14..16].copy_from_slice(&(longest + 1).to_be_bytes());
    assert_eq!(either(&header[..16]), Err(Malformed::TooLong), "as soon as it is told");
}

#[test]
fn a_header_that_was_damaged_is_refused() {
    assert_eq!(crc32c(b"123456789".iter().copied()), 0xE306_9283);
    let good = with_checksum();
    // Bytes of the addresses, of another field's value, and of the checksum itself.
    for at in [16, 20, 24, 35, good.len() - 8, good.len() - 5, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(either(&bad), Err(Malformed::Checksum), "byte {at}");
    }
}

#[test]
fn bypass_nothing_is_taken_for_a_header_that_is_not_expected() {
    let v2 = binary(0x21, 0x11, &tcp4());
    assert_eq!(parse(Version::V2, V1), Err(Malformed::NoHeader));
    assert_eq!(parse(Version::V1, &v2), Err(Malformed::NoHeader));
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"proxy TCP4", b"P0", b"\r\n\r\nx", b" PROXY ", b"\x16\x03"]
    {
        for version in [Version::V1, Version::V2, Version::Any] {
            assert_eq!(parse(version, bytes), Err(Malformed::NoHeader), "{bytes:?}");
        }
    }
    for version in [Version::V1, Version::V2, Version::Any] {
        assert_eq!(parse(version, b""), Ok(Parsed::Incomplete));
    }
}

/// Bytes that are headers, nearly headers, or nothing of the kind.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let good = prop_oneof![
        Just(V1.to_vec()),
        Just(b"PROXY UNKNOWN\r\n".to_vec()),
        Just(with_checksum()),
        Just(binary(0x20, 0x00, b"")),
        Just(binary(0x21, 0x31, &[1; 216])),
        "PROXY (TCP4|TCP6|UNKNOWN)?[ 0-9.:a-f]{0,110}(\r\n)?".prop_map(String::into_bytes),
    ];
    let body = prop::collection::vec(any::<u8>(), 0..60);
    let nearly = (prop_oneof![Just(0x20_u8), Just(0x21)], any::<u8>(), body)
        .prop_map(|(command, family, body)| binary(command, family, &body));
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let changed =
        (good.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut b, at, x)| {
            let at = at.index(b.len());
            b[at] = x;
            b
        });
    (prop_oneof![good, nearly, changed, noise.clone()], noise).prop_map(|(a, b)| [a, b].concat())
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V1), Just(Version::V2), Just(Version::Any)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// However the bytes come in, the first answer other than "more" is the same, and it is the
    /// answer to all of them at once.
    #[test]
    fn any_split_gives_the_same_answer(bytes in bytes(), version in version()) {
        let whole = parse(version, &bytes);
        let first = (0..=bytes.len()).map(|end| parse(version, &bytes[..end]))
            .find(|answer| *answer != Ok(Parsed::Incomplete));
        prop_assert_eq!(first.unwrap_or(Ok(Parsed::Incomplete)), whole);
        if let Ok(Parsed::Complete { len, .. }) = whole {
            prop_assert!(len <= bytes.len() && len <= MAX_BYTES);
            prop_assert_eq!(parse(version, &bytes[..len]), whole, "what follows does not matter");
        }
    }
}

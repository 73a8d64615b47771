//! Headers that balancers send, malformed headers, and properties of the parser.

use proptest::prelude::*;

use super::v2::crc32c;
use super::*;

const V1: &[u8] = b"PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\r\n";

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

/// Builds a version 2 header.
fn v2_header(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = v2::SIGNATURE.to_vec();
    bytes.extend_from_slice(&[command, family]);
    bytes.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn tcp4() -> Vec<u8> {
    vec![203, 0, 113, 9, 192, 0, 2, 1, 0xC8, 0x22, 0x01, 0xBB]
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![kind];
    field.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
    field.extend_from_slice(value);
    field
}

/// A header with a valid checksum between two other fields.
fn v2_header_with_checksum() -> Vec<u8> {
    let fields = [tcp4(), tlv(0x02, b"example.org"), tlv(0x03, &[0; 4]), tlv(0x04, b"x")];
    let mut bytes = v2_header(0x21, 0x11, &fields.concat());
    let at = bytes.len() - 4 - 4;
    let sum = crc32c(bytes.iter().copied());
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn parse_any(bytes: &[u8]) -> Result<ProxyParseStatus, ProxyHeaderError> {
    parse(ProxyVersion::Any, bytes)
}

#[test]
fn v1_headers_are_parsed() {
    for (line, source) in [
        ("PROXY TCP4 203.0.113.9 192.0.2.1 51234 443\r\n", address("203.0.113.9:51234")),
        ("PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n", address("255.255.255.255:65535")),
        ("PROXY TCP6 2001:db8::9 ::1 1 2\r\n", address("[2001:db8::9]:1")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff::1 what ever 7\r\n", None),
    ] {
        let expected = ProxyParseStatus::Complete { len: line.len(), source };
        assert_eq!(parse_any(line.as_bytes()), Ok(expected), "{line}");
        let followed = format!("{line}GET / HTTP/1.1\r\n");
        assert_eq!(parse(ProxyVersion::V1, followed.as_bytes()), Ok(expected), "{line}");
    }
}

#[test]
fn malformed_v1_headers_are_rejected() {
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
        assert_eq!(parse_any(line.as_bytes()), Err(ProxyHeaderError::Invalid), "{line:?}");
    }
    assert_eq!(parse_any(b"PROXY UNKNOWN \xff\r\n"), Err(ProxyHeaderError::Invalid));
}

#[test]
fn v1_header_over_107_bytes_is_rejected() {
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(107 - 16));
    assert_eq!(longest.len(), 107);
    assert_eq!(
        parse_any(longest.as_bytes()),
        Ok(ProxyParseStatus::Complete { len: 107, source: None })
    );
    let longer = longest.replace("\r\n", "x\r\n");
    assert_eq!(parse_any(longer.as_bytes()), Err(ProxyHeaderError::TooLong));
    assert_eq!(parse_any(&longer.as_bytes()[..106]), Ok(ProxyParseStatus::Incomplete));
    assert_eq!(parse_any(&longer.as_bytes()[..107]), Err(ProxyHeaderError::TooLong));
}

#[test]
fn v2_headers_are_parsed() {
    let tcp6 =
        [&[0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9][..], &[0; 16], &[0, 1, 0, 2]];
    let fields = [tlv(0x01, b"h2"), tlv(0x05, &[7; 128]), tlv(0xE0, b""), tlv(0x99, b"?")];
    for (header, source) in [
        (v2_header(0x21, 0x11, &tcp4()), address("203.0.113.9:51234")),
        (v2_header(0x21, 0x12, &tcp4()), address("203.0.113.9:51234")),
        (v2_header(0x21, 0x21, &tcp6.concat()), address("[2001:db8::9]:1")),
        (v2_header(0x21, 0x11, &[tcp4(), fields.concat()].concat()), address("203.0.113.9:51234")),
        (v2_header_with_checksum(), address("203.0.113.9:51234")),
        (v2_header(0x21, 0x31, &[0; 216]), None),
        (v2_header(0x21, 0x00, b""), None),
        (v2_header(0x21, 0x00, b"whatever"), None),
        (v2_header(0x20, 0x00, b""), None),
        (v2_header(0x20, 0x11, &tcp4()), None),
        (v2_header(0x20, 0xFF, b"whatever"), None),
    ] {
        let expected = Ok(ProxyParseStatus::Complete { len: header.len(), source });
        assert_eq!(parse_any(&header), expected, "{header:x?}");
        assert_eq!(
            parse(ProxyVersion::V2, &[&header[..], b"GET /"].concat()),
            expected,
            "{header:x?}"
        );
    }
    let example = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c\
                    \xcb\x00\x71\x09\xc0\x00\x02\x01\xc8\x22\x01\xbb";
    assert_eq!(v2_header(0x21, 0x11, &tcp4()), example, "the specification's example");
}

#[test]
fn malformed_v2_headers_are_rejected() {
    let with = |fields: &[u8]| v2_header(0x21, 0x11, &[&tcp4(), fields].concat());
    let twice = [tlv(0x03, &[0; 4]), tlv(0x03, &[0; 4])].concat();
    for header in [
        v2_header(0x22, 0x11, &tcp4()),
        v2_header(0x11, 0x11, &tcp4()),
        v2_header(0x31, 0x11, &tcp4()),
        v2_header(0x21, 0x13, &tcp4()),
        v2_header(0x21, 0x41, &tcp4()),
        v2_header(0x21, 0x11, &tcp4()[..11]),
        v2_header(0x21, 0x21, &[0; 35]),
        v2_header(0x21, 0x31, &[0; 215]),
        with(b"\x01"),
        with(b"\x01\x00"),
        with(b"\x01\x00\x02x"),
        with(&tlv(0x05, &[0; 129])),
        with(&tlv(0x03, &[0; 3])),
        with(&twice),
    ] {
        assert_eq!(parse_any(&header), Err(ProxyHeaderError::Invalid), "{header:x?}");
    }
    let longest = u16::try_from(MAX_HEADER_BYTES - 16).unwrap();
    let mut header = v2_header(0x20, 0x00, &vec![0; usize::from(longest)]);
    assert_eq!(
        parse_any(&header),
        Ok(ProxyParseStatus::Complete { len: MAX_HEADER_BYTES, source: None })
    );
    header[14..16].copy_from_slice(&(longest + 1).to_be_bytes());
    assert_eq!(
        parse_any(&header[..16]),
        Err(ProxyHeaderError::TooLong),
        "rejected before the body arrives"
    );
}

#[test]
fn corrupt_v2_checksum_is_rejected() {
    assert_eq!(crc32c(b"123456789".iter().copied()), 0xE306_9283);
    let good = v2_header_with_checksum();
    // Bytes of the addresses, of another field's value, and of the checksum itself.
    for at in [16, 20, 24, 35, good.len() - 8, good.len() - 5, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(parse_any(&bad), Err(ProxyHeaderError::Checksum), "byte {at}");
    }
}

#[test]
fn bypass_unexpected_header_version_is_rejected() {
    let v2 = v2_header(0x21, 0x11, &tcp4());
    assert_eq!(parse(ProxyVersion::V2, V1), Err(ProxyHeaderError::NoHeader));
    assert_eq!(parse(ProxyVersion::V1, &v2), Err(ProxyHeaderError::NoHeader));
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"proxy TCP4", b"P0", b"\r\n\r\nx", b" PROXY ", b"\x16\x03"]
    {
        for version in [ProxyVersion::V1, ProxyVersion::V2, ProxyVersion::Any] {
            assert_eq!(parse(version, bytes), Err(ProxyHeaderError::NoHeader), "{bytes:?}");
        }
    }
    for version in [ProxyVersion::V1, ProxyVersion::V2, ProxyVersion::Any] {
        assert_eq!(parse(version, b""), Ok(ProxyParseStatus::Incomplete));
    }
}

/// Valid headers, almost valid headers, and noise.
fn header_like_bytes() -> impl Strategy<Value = Vec<u8>> {
    let good = prop_oneof![
        Just(V1.to_vec()),
        Just(b"PROXY UNKNOWN\r\n".to_vec()),
        Just(v2_header_with_checksum()),
        Just(v2_header(0x20, 0x00, b"")),
        Just(v2_header(0x21, 0x31, &[1; 216])),
        "PROXY (TCP4|TCP6|UNKNOWN)?[ 0-9.:a-f]{0,110}(\r\n)?".prop_map(String::into_bytes),
    ];
    let body = prop::collection::vec(any::<u8>(), 0..60);
    let nearly = (prop_oneof![Just(0x20_u8), Just(0x21)], any::<u8>(), body)
        .prop_map(|(command, family, body)| v2_header(command, family, &body));
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let changed =
        (good.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut b, at, x)| {
            let at = at.index(b.len());
            b[at] = x;
            b
        });
    (prop_oneof![good, nearly, changed, noise.clone()], noise).prop_map(|(a, b)| [a, b].concat())
}

fn any_version() -> impl Strategy<Value = ProxyVersion> {
    prop_oneof![Just(ProxyVersion::V1), Just(ProxyVersion::V2), Just(ProxyVersion::Any)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// However the input is split, the first result other than `Incomplete` equals the result for
    /// the whole input.
    #[test]
    fn result_is_independent_of_split(bytes in header_like_bytes(), version in any_version()) {
        let whole = parse(version, &bytes);
        let first = (0..=bytes.len()).map(|end| parse(version, &bytes[..end]))
            .find(|result| *result != Ok(ProxyParseStatus::Incomplete));
        prop_assert_eq!(first.unwrap_or(Ok(ProxyParseStatus::Incomplete)), whole);
        if let Ok(ProxyParseStatus::Complete { len, .. }) = whole {
            prop_assert!(len <= bytes.len() && len <= MAX_HEADER_BYTES);
            prop_assert_eq!(parse(version, &bytes[..len]), whole, "the result depends on bytes after the header");
        }
    }
}

//! Parses and writes the W3C Trace Context headers `traceparent` and `tracestate`.
//!
//! An invalid `traceparent` is ignored: the request starts a new trace and is not rejected.

use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Maximum length of an exported `tracestate`. It is forwarded to the upstream whatever its length.
const MAX_STATE: usize = 512;

const SAMPLED: u8 = 1;
/// Level 2 flag: the trace ID is random. It is propagated unchanged; unknown flags are cleared.
const RANDOM: u8 = 2;

/// The ID of a trace.
pub(super) type TraceId = [u8; 16];
/// The ID of a span.
pub(super) type SpanId = [u8; 8];

/// A span's position in a trace, and the trace flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceContext {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) flags: u8,
}

impl TraceContext {
    /// The root span of a new trace.
    pub(super) fn new_root(trace: TraceId, span: SpanId, sampled: bool) -> Self {
        Self { trace, span, flags: u8::from(sampled) }
    }

    /// The caller's context; `None` unless there is exactly one valid `traceparent`.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => None,
        }
    }

    /// Parses `VERSION-TRACE-SPAN-FLAGS`. Later versions may append fields, which are ignored.
    fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(55)?;
        let [version] = decode_hex::<1>(known.get(..2)?)?;
        let ends = rest.is_empty() || version != 0 && rest.starts_with(b"-");
        let dashes = [2, 35, 52].iter().all(|at| known.get(*at) == Some(&b'-'));
        if version == 0xff || !ends || !dashes {
            return None;
        }
        let (trace, span) = (decode_hex(known.get(3..35)?)?, decode_hex(known.get(36..52)?)?);
        let [flags] = decode_hex::<1>(known.get(53..55)?)?;
        let has_ids = trace != [0; 16] && span != [0; 8];
        has_ids.then_some(Self { trace, span, flags: flags & (SAMPLED | RANDOM) })
    }

    pub(super) const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace, at another span.
    pub(super) const fn with_span(self, span: SpanId) -> Self {
        Self { span, ..self }
    }

    /// The `traceparent` value for the next server.
    pub(super) fn to_header(self) -> HeaderValue {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        encode_hex(&mut text[3..35], &self.trace);
        encode_hex(&mut text[36..52], &self.span);
        encode_hex(&mut text[53..55], &[self.flags]);
        // Hex digits and dashes are always a valid header value.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// The `tracestate` lines, joined; `None` if empty or too long.
pub(super) fn tracestate(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok());
    let state = lines.collect::<Vec<_>>().join(",");
    (1..=MAX_STATE).contains(&state.len()).then_some(state)
}

/// Decodes lower-case hex digits; `None` for any other character or length.
fn decode_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    (pairs.len() == N).then_some(bytes)
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn encode_hex(into: &mut [u8], bytes: &[u8]) {
    let digits = b"0123456789abcdef";
    for (pair, byte) in into.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn specification_example_round_trips() {
        let context = TraceContext::parse(EXAMPLE.as_bytes()).unwrap();
        assert!(context.is_sampled());
        assert_eq!(context.span, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!(context.to_header(), EXAMPLE);
    }

    #[test]
    fn only_later_versions_allow_extra_fields() {
        for (text, good) in [
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-is-this", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ", false),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01", false),
            ("", false),
        ] {
            assert_eq!(TraceContext::parse(text.as_bytes()).is_some(), good, "{text}");
        }
    }

    #[test]
    fn unknown_trace_flags_are_dropped() {
        let all = EXAMPLE.replace("-01", "-ff");
        assert_eq!(TraceContext::parse(all.as_bytes()).unwrap().flags, SAMPLED | RANDOM);
    }

    #[test]
    fn duplicate_traceparent_is_ignored() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(EXAMPLE));
        assert!(TraceContext::from_headers(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(EXAMPLE));
        assert_eq!(TraceContext::from_headers(&headers), None);
    }

    proptest! {
        #[test]
        fn written_traceparent_is_parsed_back(trace: [u8; 16], span: [u8; 8], sampled: bool) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let context = TraceContext::new_root(trace, span, sampled);
            prop_assert_eq!(context.is_sampled(), sampled);
            prop_assert_eq!(TraceContext::parse(context.to_header().as_bytes()), Some(context));
        }

        #[test]
        fn arbitrary_traceparent_parses_without_panic(text in "(?s).{0,80}", cut in 0_usize..60, with: u8) {
            // A value that parses is written back with the same IDs.
            let mut near = EXAMPLE.as_bytes().to_vec();
            if let Some(byte) = near.get_mut(cut) {
                *byte = with;
            }
            for text in [text.as_bytes(), &near] {
                if let Some(context) = TraceContext::parse(text) {
                    let written = context.to_header();
                    prop_assert_eq!(&written.as_bytes()[3..52], &text[3..52]);
                }
            }
        }
    }
}

//! Every header form, and values that no honest server sends.

use std::time::{Duration, SystemTime};

use http::{HeaderValue, Response};
use proptest::prelude::*;

use super::*;

const DATE_TEXT: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

fn hints(status: u16, headers: &[(&'static str, &str)]) -> ResponseHints {
    let bytes: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    hints_of_bytes(status, &bytes, None)
}

fn hints_of_bytes(
    status: u16,
    headers: &[(&'static str, &[u8])],
    wall_clock: Option<SystemTime>,
) -> ResponseHints {
    let mut response = Response::builder().status(status).body(()).unwrap();
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            response.headers_mut().append(*name, value);
        }
    }
    ResponseHints::from_response(&response, wall_clock)
}

/// `remaining/limit per window, reset` of each policy, in seconds.
fn summary(headers: &[(&'static str, &str)]) -> Vec<String> {
    let secs =
        |span: Option<Duration>| span.map_or("-".to_owned(), |span| span.as_secs().to_string());
    let describe = |quota: &QuotaNumbers| {
        let limit = quota.limit.map_or("-".to_owned(), |limit| limit.to_string());
        let QuotaNumbers { policy, remaining, window, reset_after, .. } = quota;
        format!("{policy} {remaining}/{limit} per {}, {}", secs(*window), secs(*reset_after))
    };
    hints(200, headers).quotas.iter().map(describe).collect()
}

#[test]
fn retry_after_of_both_forms_is_read() {
    let wait = |headers: &[(&'static str, &str)]| {
        hints(429, &[headers, &[("date", DATE_TEXT)]].concat()).retry_after
    };
    let secs = |secs| Some(Duration::from_secs(secs));
    for (value, expected) in [
        ("2", secs(2)),
        (" 2 ", secs(2)),
        ("1.2", secs(2)),
        ("Tue, 14 Nov 2023 22:13:27 GMT", secs(7)),
        ("Tuesday, 14-Nov-23 22:13:27 GMT", secs(7)),
        ("Tue Nov 14 22:13:27 2023", secs(7)),
        ("Tue, 14 Nov 2023 22:13:19 GMT", secs(0)),
        ("99999999999999999999", secs(999_999_999_999_999)),
        ("-1", None),
        ("+1", None),
        ("1e3", None),
        ("NaN", None),
        ("infinity", None),
        ("soon", None),
        ("", None),
        (".", None),
    ] {
        assert_eq!(wait(&[("retry-after", value)]), expected, "{value}");
    }
    let repeated = [("retry-after", "2"), ("retry-after", "x"), ("retry-after", "5")];
    assert_eq!(wait(&repeated), secs(5), "the longest valid value");
}

#[test]
fn exact_milliseconds_count_if_both_agree() {
    let wait = |secs: &str, millis: &str| {
        let headers = [("retry-after", secs), ("retry-after-ms", millis)];
        hints(429, &headers).retry_after.map(|wait| wait.as_millis())
    };
    assert_eq!(wait("2", "1250"), Some(1_250));
    assert_eq!(wait("3600", "1"), Some(3_600_000));
    assert_eq!(wait("1", "9000"), Some(9_000));
    assert_eq!(wait("x", "250.5"), Some(251));
    assert_eq!(wait("2", "-5"), Some(2_000));
}

#[test]
fn dates_need_a_reference() {
    let date = [("retry-after", DATE_TEXT.as_bytes())];
    assert_eq!(hints_of_bytes(429, &date, None).retry_after, None);
    let clock = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 - 9);
    let by_clock = hints_of_bytes(429, &date, Some(clock)).retry_after;
    assert_eq!(by_clock, Some(Duration::from_secs(9)));
    let with_date = [date[0], ("date", b"Tue, 14 Nov 2023 22:13:15 GMT".as_slice())];
    let by_date = hints_of_bytes(429, &with_date, Some(clock)).retry_after;
    assert_eq!(by_date, Some(Duration::from_secs(5)), "the server's clock counts");
}

#[test]
fn ietf_lists_of_policies_are_read() {
    let policies = r#""burst";q=20;w=1, "per-min";q=600;w=60;pk=:dXNlci00Mg==:"#;
    let both = r#""burst";r=3;t=1, "per-min"; r=12;t=30;pk=:dXNlci00Mg==:"#;
    let expected = ["burst 3/20 per 1, 1", "per-min 12/600 per 60, 30"];
    assert_eq!(summary(&[("ratelimit-policy", policies), ("ratelimit", both)]), expected);
    let lines = [
        ("ratelimit-policy", r#""burst";q=20;w=1"#),
        ("ratelimit-policy", r#""per-min";q=600;w=60"#),
        ("ratelimit", r#""burst";r=3;t=1"#),
        ("ratelimit", r#""per-min";a=12;w=30"#),
    ];
    assert_eq!(summary(&lines), expected, "several lines, and the names of the open change");
    assert_eq!(summary(&[("ratelimit", r#""x";r=5"#)]), ["x 5/- per -, -"]);
}

#[test]
fn policies_of_other_units_are_ignored() {
    let policies =
        r#""bytes";q=9;qu="content-bytes", "slots";q=9;qu="concurrent-requests", "n";q=9"#;
    let state = r#""bytes";r=0;t=60, "slots";r=0, "n";r=4"#;
    assert_eq!(
        summary(&[("ratelimit-policy", policies), ("ratelimit", state)]),
        ["n 4/9 per -, -"]
    );
}

#[test]
fn excess_policies_are_ignored() {
    let many: Vec<String> = (0..100).map(|index| format!("\"p{index}\";r={index}")).collect();
    assert_eq!(summary(&[("ratelimit", &many.join(","))]).len(), 16);
}

#[test]
fn older_ietf_forms_are_read() {
    let draft_7 =
        [("ratelimit-policy", "100;w=60"), ("ratelimit", "limit=100, remaining=50, reset=30")];
    assert_eq!(summary(&draft_7), [" 50/100 per 60, 30"]);
    let draft_3 = [
        ("ratelimit-limit", "10, 10;w=1, 1000;w=3600"),
        ("ratelimit-remaining", "9"),
        ("ratelimit-reset", "1"),
    ];
    assert_eq!(summary(&draft_3), [" 9/10 per 1, 1"]);
}

#[test]
fn x_headers_of_every_dialect_are_read() {
    let read = |reset: &str| {
        let headers = [
            ("date", DATE_TEXT),
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "4"),
            ("x-ratelimit-reset", reset),
        ];
        summary(&headers)[0].clone()
    };
    for (reset, secs) in [
        ("30", "30"),                            // Envoy: seconds from now
        ("1700000030", "30"),                    // GitHub: epoch seconds
        ("1700000030000", "30"),                 // epoch milliseconds
        ("Tue, 14 Nov 2023 22:13:50 GMT", "30"), // Vimeo: a date
        ("1699999999", "-"),                     // in the past
        ("-5", "-"),
        ("NaN", "-"),
        ("", "-"),
    ] {
        assert_eq!(read(reset), format!(" 4/10 per -, {secs}"), "{reset}");
    }
    let reddit = [
        ("x-ratelimit-used", "96"),
        ("x-ratelimit-remaining", "504.0"),
        ("x-ratelimit-reset", "120"),
    ];
    assert_eq!(summary(&reddit), [" 504/600 per -, 120"]);
    let twitter = [("x-rate-limit-remaining", "7"), ("x-rate-limit-limit", "15")];
    assert_eq!(summary(&twitter), [" 7/15 per -, -"]);
    let envoy = [("x-ratelimit-limit", r#"10, 10;w=60;name="x""#), ("x-ratelimit-remaining", "1")];
    assert_eq!(summary(&envoy), [" 1/10 per 60, -"]);
    let repeated = [("x-ratelimit-remaining", "9"), ("x-ratelimit-remaining", "2")];
    assert_eq!(summary(&repeated), [" 2/- per -, -"], "the strictest");
}

#[test]
fn malformed_field_gives_way_to_next_family() {
    let fallback = ("x-ratelimit-remaining", "4");
    for field in [
        r#""x";r=-1"#,
        r#""x";r=1.5"#,
        r#""x";t=5"#,
        r#""x";r"#,
        "\"x",
        "x=",
        "(\"x\");r=1",
        "9999999999999999",
        "limit=5, remaining=-1",
        "\"\u{e9}\";r=1",
    ] {
        assert_eq!(summary(&[("ratelimit", field), fallback]), [" 4/- per -, -"], "{field}");
    }
}

#[test]
fn cached_numbers_are_ignored() {
    let numbers = ("ratelimit", r#""x";r=0;t=60"#);
    assert_eq!(summary(&[numbers, ("age", "1")]).len(), 0);
    assert_eq!(summary(&[numbers, ("age", "0")]).len(), 1);
}

#[test]
fn outcome_follows_status_and_grpc_status() {
    use CallOutcome::{Accepted, Overloaded, Refused};
    for (status, headers, expected) in [
        (200, &[][..], Accepted),
        (429, &[], Refused),
        (503, &[], Overloaded),
        (500, &[], Accepted),
        (403, &[], Accepted),
        (403, &[("x-ratelimit-remaining", "0")], Refused),
        (403, &[("x-ratelimit-remaining", "1")], Accepted),
        (200, &[("grpc-status", "8")], Refused),
        (200, &[("grpc-status", "14")], Overloaded),
        (200, &[("grpc-status", "0")], Accepted),
    ] {
        assert_eq!(hints(status, headers).outcome, expected, "{status} {headers:?}");
    }
    let pushback = |value| hints(200, &[("grpc-status", "8"), ("grpc-retry-pushback-ms", value)]);
    assert_eq!(pushback("250").retry_after, Some(Duration::from_millis(250)));
    assert!(pushback("-1").forbids_retry && !pushback("250").forbids_retry);
}

#[test]
fn retry_after_replaces_reset_of_a_refusal() {
    let headers = [("retry-after", "9"), ("ratelimit", r#""x";r=0;t=3"#)];
    assert_eq!(hints(429, &headers).quotas[0].reset_after, Some(Duration::from_secs(9)));
    assert_eq!(hints(200, &headers).quotas[0].reset_after, Some(Duration::from_secs(3)));
}

/// The names of all headers that are read.
const NAMES: [&str; 17] = [
    "retry-after",
    "retry-after-ms",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-used",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "age",
    "date",
    "grpc-status",
    "grpc-retry-pushback-ms",
];

/// A hostile value: bytes, a number, a damaged field, or a date.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        any::<i128>().prop_map(|number| number.to_string().into_bytes()),
        any::<f64>().prop_map(|number| number.to_string().into_bytes()),
        "(\"[a-z]?\";(r|t|q|w|qu|pk|a)=(-?[0-9]{1,17}|:[a-z]*:|\"x\")(, |;|))+"
            .prop_map(String::into_bytes),
        "(limit|remaining|reset)=-?[0-9]{1,16}(, (limit|remaining|reset)=[0-9]{1,15}){0,3}"
            .prop_map(String::into_bytes),
        (0_u64..=253_402_300_799).prop_map(|secs| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
            httpdate::fmt_http_date(time).into_bytes()
        }),
    ]
}

/// Hints read from a hostile response.
pub(crate) fn any_hints() -> impl Strategy<Value = ResponseHints> {
    let header = (prop::sample::select(&NAMES[..]), any_value());
    let status = prop_oneof![Just(200), Just(429), Just(503), Just(403)];
    (status, prop::collection::vec(header, 0..6), any::<bool>()).prop_map(
        |(status, headers, has_clock)| {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (*name, value.as_slice())).collect();
            let clock = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            hints_of_bytes(status, &headers, has_clock.then_some(clock))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(tidegate_testkit::property::cases() / 50))]

    #[test]
    fn hostile_headers_give_bounded_numbers(hints in any_hints()) {
        const MAX: u64 = 2_000_000_000_000_000;
        prop_assert!(hints.quotas.len() <= 16);
        for quota in &hints.quotas {
            prop_assert!(quota.remaining <= MAX && quota.limit.unwrap_or(0) <= MAX);
        }
    }

    #[test]
    fn numbers_survive_every_ietf_form(
        r in 0_u64..1_000_000,
        t in 1_u64..1_000_000,
        q in 0_u64..1_000_000,
    ) {
        let list = format!(r#""a b\"c";r={r};t={t}"#);
        let policy = format!(r#""a b\"c";q={q};w={t}"#);
        let dictionary = format!("limit={q}, remaining={r}, reset={t}");
        let (r, q, t) = (r.to_string(), q.to_string(), t.to_string());
        let trio =
            [("ratelimit-limit", &*q), ("ratelimit-remaining", &*r), ("ratelimit-reset", &*t)];
        let expected = format!("{r}/{q} per -, {t}");
        let listed = summary(&[("ratelimit", &list), ("ratelimit-policy", &policy)]);
        prop_assert_eq!(listed, [format!("a b\"c {r}/{q} per {t}, {t}")]);
        prop_assert_eq!(summary(&[("ratelimit", &dictionary)]), [format!(" {expected}")]);
        prop_assert_eq!(summary(&trio), [format!(" {expected}")]);
    }
}

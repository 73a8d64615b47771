//! Whatever somebody writes into an edit is kept as it is, or refused with a reason; nothing in
//! between.

use tidegate_control::{Book, Edit, Entry, Kept, Kind, Refused};

use crate::common::{Place, edit, noise, on_both, put, take};

on_both!(kept_as_it_is, refused_with_a_reason, odd_json_is_json);

const NAMES: [&str; 9] = [
    "'; DROP TABLE rule_version; --",
    "\"quoted\" 'twice' `thrice`",
    "$1 ?1 :name @x {rows} %s \\",
    "\\u0000 is not NUL",
    "line\nfeed\r\ttab\u{7F}\u{1}",
    "\u{1F980}\u{202E}مرحبا\u{FEFF}e\u{301}",
    "[1,2]",
    "null",
    "",
];

async fn kept_as_it_is(place: Place) {
    let office = place.open().await;
    let mut entries: Vec<Entry> = Vec::new();
    for kind in Kind::ALL {
        entries.extend(NAMES.iter().map(|name| {
            let value = serde_json::json!({ "position": name, "rule": { "key_pattern": name, "plan": name,
                "description": name, "scope": name, "mode": name }, "until": name, "tier": name });
            put(kind, name, &value.to_string())
        }));
        let (pattern, id) = (noise(10_000) + "'\"\\", noise(170));
        let rule = serde_json::json!({ "key_pattern": pattern, "plan": pattern, "limit": "1/s" });
        entries.push(put(kind, &id, &serde_json::json!({ "rule": rule }).to_string()));
    }
    let wanted = Edit { author: NAMES.concat(), reason: NAMES.concat(), ..edit(entries.clone()) };
    assert_eq!(office.commit(0, &wanted).await, Ok(1));
    let kept = |entry: Entry| {
        (entry.kind, entry.id, Kept { value: entry.value.unwrap_or_default(), version: 1 })
    };
    let expected = Book::new(1, entries.iter().cloned().map(kept));
    assert_eq!(office.book().await, Ok(expected));
    let mut followed = Book::default();
    followed.follow(office.changes(0, 1).await.expect("changes"));
    assert_eq!(Ok(followed), office.book().await, "the audit says the same");
    let signed = office.history(2, 1).await.expect("history");
    assert_eq!((&signed[0].author, &signed[0].reason), (&wanted.author, &wanted.reason));

    let gone = edit(entries.into_iter().map(|entry| take(entry.kind, &entry.id)));
    assert_eq!(office.commit(1, &gone).await, Ok(2));
    assert_eq!(office.book().await, Ok(Book::new(2, [])));
}

async fn refused_with_a_reason(place: Place) {
    let office = place.open().await;
    office.commit(0, &edit([put(Kind::Setting, "a", "1")])).await.expect("a version");
    let before = office.book().await;
    let good = put(Kind::Setting, "good", "1");
    let bad: [(&str, Edit); 7] = [
        ("NUL", edit([good.clone(), put(Kind::Rule, "a\0b", "{}")])),
        ("NUL", edit([good.clone(), put(Kind::Rule, "a", "\"a\0b\"")])),
        ("NUL", Edit { author: "a\0b".into(), ..edit([good.clone()]) }),
        ("NUL", Edit { reason: "a\0b".into(), ..edit([good.clone()]) }),
        ("at most 512", edit([good.clone(), put(Kind::Override, &"x".repeat(513), "{}")])),
        ("no JSON", edit([good.clone(), put(Kind::Subject, "s", "{")])),
        ("twice", edit([good.clone(), good.clone()])),
    ];
    for (why, wanted) in bad {
        let refused = office.commit(1, &wanted).await;
        assert!(
            matches!(&refused, Err(Refused::Unfit(said)) if said.contains(why)),
            "{why}: {refused:?}"
        );
    }
    assert_eq!(office.book().await, before);
}

/// What the columns for people cannot say does not matter.
async fn odd_json_is_json(place: Place) {
    let office = place.open().await;
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let odd = [
        "null",
        "1e999",
        "-0",
        "\"text\"",
        "[]",
        "{\"rule\": null}",
        " \n{} ",
        r#"{"position": 1e30, "rule": {"description": "a\u0000b", "plan": "\u0000", "key_pattern": "\u0000"}}"#,
        r#"{"rule": {"rate_per_second": 1e308, "burst_capacity": 99999999999999999999999}}"#,
        r#"{"rule": {"rate_per_second": -1, "limit": "10/s", "is_active": "yes", "description": 7}}"#,
        r#"{"rule": {"a": 1, "a": 2}, "rule": 3}"#,
        &deep,
    ];
    for kind in Kind::ALL {
        let head = office.head().await.expect("the latest");
        let entries =
            odd.iter().enumerate().map(|(id, value)| put(kind, &format!("x:{id}"), value));
        assert_eq!(office.commit(head, &edit(entries)).await, Ok(head + 1));
        let book = office.book().await.expect("a book");
        for (id, value) in odd.iter().enumerate() {
            let kept = book.get(kind, &format!("x:{id}")).expect("an entry");
            assert_eq!(kept.value, *value, "byte for byte");
        }
    }
}

use super::*;

fn parse_single(text: &str) -> (String, CelPredicate) {
    let mut claims = parse_condition(text).unwrap_or_else(|reason| panic!("{text}: {reason}"));
    assert_eq!(claims.len(), 1, "{text}");
    claims.remove(0)
}

#[test]
fn common_cel_forms_are_parsed() {
    let is = |values: &[&str]| CelPredicate::Is(values.iter().map(ToString::to_string).collect());
    for (text, name, claim) in [
        ("descriptors[0]['req.method'] == 'GET'", "req.method", is(&["GET"])),
        ("descriptors[0].user_id==\"a b\"", "user_id", is(&["a b"])),
        (" 'x' == descriptors [ 0 ] . y ", "y", is(&["x"])),
        ("descriptors[0]['a'] != '/json'", "a", CelPredicate::Not("/json".to_owned())),
        ("req.method == 'GET'", "req.method", is(&["GET"])),
        ("user_id != \"it's\"", "user_id", CelPredicate::Not("it's".to_owned())),
        ("descriptors[0].a in ['x', 'y']", "a", is(&["x", "y"])),
        ("'a' in descriptors[0]", "a", CelPredicate::Present),
        ("has(descriptors[0].a)", "a", CelPredicate::Present),
        (
            "descriptors[0].path.startsWith('/api/')",
            "path",
            CelPredicate::Like("/api/*".to_owned()),
        ),
        ("descriptors[0]['p'].endsWith('.png')", "p", CelPredicate::Like("*.png".to_owned())),
        ("req.path.contains('x')", "req.path", CelPredicate::Like("*x*".to_owned())),
        (r"a == 'it\'s \\ \n'", "a", is(&["it's \\ \n"])),
    ] {
        assert_eq!(parse_single(text), (name.to_owned(), claim), "{text}");
    }
    let both = parse_condition("descriptors[0].a == 'x' && descriptors[0].b != 'y'").unwrap();
    assert_eq!(
        both,
        [("a".to_owned(), is(&["x"])), ("b".to_owned(), CelPredicate::Not("y".to_owned()))]
    );
    assert_eq!(parse_variable("descriptors[0]['auth.user']").unwrap(), "auth.user");
    assert_eq!(parse_variable("descriptors[0].user_id").unwrap(), "user_id");
    assert_eq!(parse_variable("auth.user").unwrap(), "auth.user");
}

#[test]
fn unsupported_cel_error_names_cause() {
    for (text, words) in [
        ("", "it ends where a name should follow"),
        ("a", "it ends where `==` or `!=`"),
        ("a == b", "`b` found where only a quoted string"),
        ("a == 'x' || a == 'y'", "`||` found where only the end, or `&&`"),
        ("!(a == 'x')", "`!` found where only a name"),
        ("descriptors[1].a == 'x'", "each descriptor separately"),
        ("limit.name == 'x'", "the name of the limit"),
        ("a.matches('x.*')", "`matches` has no equivalent"),
        ("size(descriptors[0].a) > 3", "`>` is not supported"),
        ("a == 'x", "a quote is not closed"),
        (r"a == '\x41'", "`\\x` is not supported"),
        ("a in []", "`]` found where only a quoted string"),
        ("'a' in b", "`b` has no equivalent"),
    ] {
        let reason = parse_condition(text).unwrap_err();
        assert!(reason.contains(words), "{text}: {reason}");
    }
    assert!(parse_variable("descriptors[0].a + 'x'").unwrap_err().contains("`+` is not supported"));
    assert!(parse_variable("'x'").unwrap_err().contains("a name"));
}

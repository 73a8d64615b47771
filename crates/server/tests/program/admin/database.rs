//! `tidegate db migrate`, on SQLite and on a PostgreSQL of the test's own.

use tidegate_testkit::postgres::Database;

use crate::support::{Folder, run, text};

#[track_caller]
fn migrate(url: &str) -> (Option<i32>, String, String) {
    let output = run(&["db", "migrate", "--rules-db", url]);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_schema_is_made_once_and_what_was_applied_is_told() {
    let (folder, database) = (Folder::new(), Database::fresh());
    let sqlite = format!("sqlite:{}", folder.path("rules.db").display());
    for url in [sqlite, database.url()] {
        let (code, out, err) = migrate(&url);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.starts_with("applied 0001 "), "{out}");
        let (code, out, _) = migrate(&url);
        assert_eq!(
            (code, out.as_str()),
            (Some(0), "nothing to apply: the database is up to date\n")
        );
    }
}

#[test]
fn a_database_of_somebody_else_is_left_alone_and_passwords_are_not_told() {
    let database = Database::fresh();
    database.sql("CREATE TABLE theirs (id int)");
    let (code, _, err) = migrate(&database.url());
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("theirs") && err.contains("search_path"), "{err}");
    // Nobody listens on port 1 of loopback.
    let (code, _, err) = migrate("postgres://ann:sesame@127.0.0.1:1/rules");
    assert!(code == Some(3) && !err.contains("sesame"), "{err}");
    let (code, _, err) = migrate("mysql://ann:sesame@db/rules");
    assert_eq!(code, Some(2));
    assert!(err.contains("sqlite:PATH") && !err.contains("sesame"), "{err}");
    assert_eq!(run(&["db", "migrate"]).status.code(), Some(2));
}

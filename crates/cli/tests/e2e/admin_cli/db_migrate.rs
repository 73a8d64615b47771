//! `tidegate db migrate`, on SQLite and on PostgreSQL.

use tidegate_testkit::postgres::TestDatabase;

use crate::support::{TestFolder, run_tidegate, utf8_text};

#[track_caller]
fn run_migrate(url: &str) -> (Option<i32>, String, String) {
    let output = run_tidegate(&["db", "migrate", "--rules-db", url]);
    (output.status.code(), utf8_text(&output.stdout), utf8_text(&output.stderr))
}

#[test]
fn migrate_creates_schema_once() {
    let (folder, database) = (TestFolder::new(), TestDatabase::create());
    let sqlite = format!("sqlite:{}", folder.path("rules.db").display());
    for url in [sqlite, database.url()] {
        let (code, out, err) = run_migrate(&url);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.starts_with("applied 0001 "), "{out}");
        let (code, out, _) = run_migrate(&url);
        assert_eq!(
            (code, out.as_str()),
            (Some(0), "nothing to apply: the database is up to date\n")
        );
    }
}

#[test]
fn migrate_refuses_foreign_database_without_leaking_passwords() {
    let database = TestDatabase::create();
    database.sql("CREATE TABLE theirs (id int)");
    let (code, _, err) = run_migrate(&database.url());
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("theirs") && err.contains("search_path"), "{err}");
    // No process listens on port 1 of the loopback address.
    let (code, _, err) = run_migrate("postgres://ann:sesame@127.0.0.1:1/rules");
    assert!(code == Some(3) && !err.contains("sesame"), "{err}");
    let (code, _, err) = run_migrate("mysql://ann:sesame@db/rules");
    assert_eq!(code, Some(2));
    assert!(err.contains("sqlite:PATH") && !err.contains("sesame"), "{err}");
    assert_eq!(run_tidegate(&["db", "migrate"]).status.code(), Some(2));
}

//! The schema: migrations, foreign or newer databases, permissions and database URLs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_rulestore::{EntryKind, RepositoryError, migrate, open};
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::postgres::TestDatabase;

use crate::common::{RepositoryFixture, edit, put, test_on_both_databases};

test_on_both_databases!(
    concurrent_openers_migrate_once,
    migrate_reports_applied_migrations,
    foreign_database_is_left_untouched,
    newer_schema_is_refused,
    different_migration_history_is_refused,
    missing_table_is_reported,
);

async fn concurrent_openers_migrate_once(fixture: RepositoryFixture) {
    let url = fixture.url();
    let opened = (0..8).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { open(&url).await.map(|repository| repository.name().to_owned()) })
    });
    for opened in opened.collect::<Vec<_>>() {
        opened.await.expect("a task").expect("a repository");
    }
    assert_eq!(fixture.sql("SELECT count(*) FROM tidegate_migration"), "5");
}

async fn migrate_reports_applied_migrations(fixture: RepositoryFixture) {
    assert_eq!(
        migrate(&fixture.url()).await,
        Ok([
            "0001 rules",
            "0002 nodes",
            "0003 violation writers",
            "0004 violation pages",
            "0005 read only tables"
        ]
        .map(str::to_owned)
        .to_vec())
    );
    assert_eq!(migrate(&fixture.url()).await, Ok(vec![]));
    fixture.open().await;
    assert_eq!(migrate(&fixture.url()).await, Ok(vec![]));
}

async fn assert_incompatible(fixture: &RepositoryFixture, reason: &str) {
    let refused = open(&fixture.url()).await.map(|_| ());
    assert!(
        matches!(&refused, Err(RepositoryError::Incompatible(why)) if why.contains(reason)),
        "{refused:?}"
    );
    assert_eq!(migrate(&fixture.url()).await.map(|_| ()), refused);
}

async fn foreign_database_is_left_untouched(fixture: RepositoryFixture) {
    fixture.sql("CREATE TABLE invoices (number BIGINT)");
    let tables = match fixture {
        RepositoryFixture::Sqlite(_) => "PRAGMA journal_mode; SELECT name FROM sqlite_schema",
        RepositoryFixture::Postgres(_) => {
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        }
    };
    let before = fixture.sql(tables);
    assert_incompatible(&fixture, "invoices").await;
    assert_eq!(fixture.sql(tables), before);
}

async fn newer_schema_is_refused(fixture: RepositoryFixture) {
    fixture
        .open()
        .await
        .commit(0, &edit([put(EntryKind::Setting, "a", "1")]))
        .await
        .expect("a version");
    fixture.sql(
        "INSERT INTO tidegate_migration (version, description, success, checksum, execution_time)
         SELECT 7, 'of the future', success, checksum, 0 FROM tidegate_migration
         WHERE version = 1",
    );
    assert_incompatible(&fixture, "its schema version is 7, but this program only knows up to 5")
        .await;
}

async fn different_migration_history_is_refused(fixture: RepositoryFixture) {
    fixture.open().await;
    fixture.sql("UPDATE tidegate_migration SET checksum = 'x'");
    assert_incompatible(&fixture, "migration 1").await;
}

async fn missing_table_is_reported(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    fixture.sql("DROP TABLE rule_change");
    let refused = repository.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await;
    assert!(
        matches!(&refused, Err(RepositoryError::Incompatible(why)) if why.contains("rule_change")),
        "{refused:?}"
    );
    assert_eq!(repository.head().await, Ok(0), "nothing of it is stored");
}

#[tokio::test]
async fn non_sqlite_file_is_refused() {
    let fixture = RepositoryFixture::sqlite();
    let letter = "Dear reader, this is a letter and no database. ".repeat(100);
    std::fs::write(fixture.file(), &letter).expect("a file");
    assert_incompatible(&fixture, "not a database").await;
    assert_eq!(std::fs::read_to_string(fixture.file()).expect("a file"), letter);
}

#[tokio::test]
async fn sqlite_file_is_private_to_owner() {
    let fixture = RepositoryFixture::sqlite();
    let repository = fixture.open().await;
    repository.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await.expect("a version");
    for end in ["", "-wal", "-shm"] {
        let file = format!("{}{end}", fixture.file().display());
        let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(fixture.sql("PRAGMA journal_mode"), "wal");
}

/// Another process reads the file while the write-ahead log is turned on.
#[tokio::test(flavor = "multi_thread")]
async fn opening_waits_for_active_reader() {
    let fixture = RepositoryFixture::sqlite();
    migrate(&fixture.url()).await.expect("the schema");
    assert_eq!(fixture.sql("PRAGMA journal_mode = DELETE"), "delete");
    let mut reader = Command::new("sqlite3");
    reader.arg(fixture.file()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reader = reader.spawn().expect("sqlite3");
    let (mut input, mut line) = (reader.stdin.take().expect("a pipe"), String::new());
    input.write_all(b"BEGIN; SELECT count(*) FROM tidegate_migration;\n").expect("a reader");
    let mut output = BufReader::new(reader.stdout.take().expect("a pipe"));
    output.read_line(&mut line).expect("an answer");
    assert_eq!(line, "5\n");

    let url = fixture.url();
    let mut opened = tokio::spawn(async move { open(&url).await.map(|_| ()) });
    let early = tokio::time::timeout(Duration::from_millis(200), &mut opened).await;
    assert!(early.is_err(), "{early:?}");
    drop(input);
    reader.wait().expect("it ends with its input");
    assert_eq!(opened.await.expect("a task"), Ok(()));
    assert_eq!(fixture.sql("PRAGMA journal_mode"), "wal");
}

/// Least privilege: a role that may use the tables but not create any.
#[tokio::test]
async fn unprivileged_role_opens_migrated_schema() {
    let database = TestDatabase::create();
    let url = database.url().replace("tidegate@", "clerk@");
    database.sql("DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN");
    let refused = open(&url).await.map(|_| ());
    let helps =
        |why: &str| why.contains("permission denied") && why.contains("tidegate db migrate");
    assert!(
        matches!(&refused, Err(RepositoryError::Unavailable(why)) if helps(why)),
        "{refused:?}"
    );

    migrate(&database.url()).await.expect("the schema");
    database.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk");
    let repository = open(&url).await.expect("a repository");
    assert_eq!(repository.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await, Ok(1));
    drop(repository);
    database.sql("DROP OWNED BY clerk");
}

#[tokio::test]
async fn invalid_database_urls_are_refused() {
    let cases = [
        ("mysql://root:s3cret@db/rules", "`mysql:` is not a supported database"),
        ("rules.yaml", "this is not a database address"),
        ("", "this is not a database address"),
        ("sqlite:", "would be lost at exit"),
        ("sqlite::memory:", "would be lost at exit"),
        ("sqlite:rules.db?mode=ro", "takes no parameters after `?`"),
        ("postgres://root:s3cret@db:port/rules", "invalid port number"),
        ("postgres://root:s3?cret@db/rules", "in a password as %3F"),
        ("postgres://db/rules?pasword=s3cret", "known are sslmode"),
    ];
    for (url, reason) in cases {
        let refused = open(url).await.map(|_| ()).expect_err(url);
        assert!(matches!(refused, RepositoryError::Invalid(_)), "{url}: {refused:?}");
        assert!(refused.to_string().contains(reason), "{url}: {refused}");
        let shown = format!("{refused} {refused:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("cret@"), "{url}: {shown}");
        assert!(shown.contains("write") || shown.contains("written"), "{url}: {shown}");
    }
}

#[tokio::test]
async fn password_appears_in_no_name_or_error() {
    let database = TestDatabase::create();
    let url = database.url().replace("tidegate@", "tidegate:s3cret@");
    let repository = open(&url).await.expect("a repository");
    let shown = format!("{} {repository:?}", repository.name());
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(repository.name().ends_with(&format!("/{}", database.name())), "{}", repository.name());

    let unused = ReservedPort::reserve();
    let url = format!("postgres://u:s3cret@{}/rules", unused.address());
    let refused = open(&url).await.map(|_| ()).expect_err("no server listens there");
    assert!(matches!(refused, RepositoryError::Unavailable(_)), "{refused:?}");
    let shown = format!("{refused} {refused:?}");
    assert!(shown.contains(&unused.address().to_string()) && !shown.contains("s3cret"), "{shown}");

    let url = url
        .replace("u:s3cret@", "")
        .replace(&unused.address().to_string(), &database.cluster().address().to_string());
    let refused =
        open(&url.replace("/rules", "/nowhere?user=tidegate&password=s3cret")).await.map(|_| ());
    let shown = format!("{refused:?}");
    assert!(shown.contains("nowhere") && !shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn filtered_violations_use_an_index() {
    let fixture = RepositoryFixture::sqlite();
    migrate(&fixture.url()).await.expect("the schema");
    for column in ["user_id", "ip_address", "rule_id"] {
        let plan = fixture.sql(&format!(
            "EXPLAIN QUERY PLAN SELECT * FROM rate_limit_violation
             WHERE {column} = 'x' AND violation_id < 9 ORDER BY violation_id DESC LIMIT 5"
        ));
        let wanted = format!("({column}=? AND violation_id<?)");
        assert!(plan.contains(&wanted) && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}

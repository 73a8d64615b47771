//! Tests of the PostgreSQL helpers: isolated databases, restarts and cleanup.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tidegate_testkit::postgres::{PostgresCluster, TestDatabase};
use tidegate_testkit::process::{ChildProcess, eventually, eventually_some, is_alive};

#[test]
fn each_test_gets_its_own_database() {
    let (one, two) = (TestDatabase::create(), TestDatabase::create());
    one.sql("CREATE TABLE t (x int); INSERT INTO t VALUES (1)");
    assert_eq!(one.sql("SELECT x, x + 1 FROM t"), "1|2");
    assert_eq!(two.sql("SELECT count(*) FROM pg_tables WHERE tablename = 't'"), "0");
    assert_eq!(one.cluster().address(), two.cluster().address(), "both are in one cluster");
    assert!(one.cluster().address().ip().is_loopback());
    assert_eq!(one.sql("SHOW listen_addresses"), "127.0.0.1");
}

#[test]
fn killed_postgres_restarts_with_its_data() {
    let database = TestDatabase::create_in(Arc::new(PostgresCluster::start_durable()));
    assert_eq!(database.sql("SHOW synchronous_commit"), "on");
    database.sql("CREATE TABLE t (x int); INSERT INTO t VALUES (7)");
    let address = database.cluster().address();
    database.cluster().kill();
    assert!(!database.cluster().process().is_running());
    assert!(std::net::TcpStream::connect(address).is_err(), "nothing listens on the port");
    for _ in 0..2 {
        database.cluster().restart();
        assert_eq!(database.sql("SELECT x FROM t"), "7");
    }
    assert_eq!(database.cluster().address(), address);
}

/// Runs itself in a child process, which starts a cluster and is then killed.
#[test]
fn postgres_dies_with_killed_test() {
    const NAME: &str = "postgres_dies_with_killed_test";
    const FILE: &str = "TIDEGATE_TEST_PID_FILE";
    if let Some(file) = std::env::var_os(FILE) {
        let cluster = PostgresCluster::start();
        let next = Path::new(&file).with_extension("next");
        std::fs::write(&next, cluster.process().pid().to_string()).unwrap();
        std::fs::rename(next, file).unwrap();
        eventually("being killed", || false);
    }
    let folder = tempfile::tempdir().unwrap();
    // If we are root, the server runs as another user, which must be able to enter the folder.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), all).unwrap();
    let file = folder.path().join("pid");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME]).env(FILE, &file).env("TMPDIR", folder.path());
    let victim = ChildProcess::start(&command, &folder.path().join("log"));
    let pid: u32 = eventually_some("the child process has a server", || {
        assert!(victim.is_running(), "{}", victim.log());
        std::fs::read_to_string(&file).ok()?.parse().ok()
    });
    assert!(is_alive(pid));
    victim.kill();
    eventually("the server is dead", || !is_alive(pid));
}

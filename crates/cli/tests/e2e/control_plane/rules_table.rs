//! `--rules-table`: rules in a table that others edit, in a file of SQLite and in PostgreSQL.

use std::process::Command;

use serde_json::{Value, json};
use tidegate_testkit::postgres::TestDatabase;

use super::{admin_client, limits_by_rule};
use crate::support::{ServerProcess, TestFolder, tidegate_command, utf8_text, wait_for};

/// The table as the design of a rate limiter prints it.
const CREATE_TABLE: &str = "
CREATE TABLE RateLimitRule (
    rule_id          BIGSERIAL PRIMARY KEY,
    key_pattern      VARCHAR(128)  NOT NULL,  -- e.g. 'user:{user_id}', 'endpoint:/api/search'
    scope            VARCHAR(32)   NOT NULL,  -- 'user', 'endpoint', 'global', 'ip'
    rate_per_second  FLOAT         NOT NULL,  -- tokens added per second
    burst_capacity   INT           NOT NULL,  -- max tokens in bucket
    plan             VARCHAR(32),             -- NULL=applies to all, or 'free','pro','enterprise'
    is_active        BOOLEAN       NOT NULL DEFAULT TRUE,
    description      TEXT,
    created_at       TIMESTAMPTZ   NOT NULL DEFAULT NOW(),
    UNIQUE (key_pattern, plan)
);";

/// Its example rows.
const INSERT_ROWS: &str = "
INSERT INTO RateLimitRule (key_pattern, scope, rate_per_second, burst_capacity, plan) VALUES
    ('user:{user_id}', 'user', 10, 50, 'free'),
    ('user:{user_id}', 'user', 100, 500, 'pro'),
    ('endpoint:/api/search', 'endpoint', 1000, 2000, NULL),
    ('global', 'global', 50000, 100000, NULL);";

/// A database of another program, with the rule table in it.
enum ExternalDatabase {
    Sqlite(TestFolder),
    Postgres(TestFolder, TestDatabase),
}

impl ExternalDatabase {
    /// SQLite knows no `NOW()`; it takes all the types, and makes no `BIGSERIAL`.
    fn start_sqlite() -> Self {
        let theirs = Self::Sqlite(TestFolder::new());
        theirs.sql(&CREATE_TABLE.replace("NOW()", "CURRENT_TIMESTAMP"));
        theirs.sql(INSERT_ROWS);
        theirs
    }

    fn start_postgres() -> Self {
        let theirs = Self::Postgres(TestFolder::new(), TestDatabase::create());
        theirs.sql(CREATE_TABLE);
        theirs.sql(INSERT_ROWS);
        theirs
    }

    fn folder(&self) -> &TestFolder {
        match self {
            Self::Sqlite(folder) | Self::Postgres(folder, _) => folder,
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path("theirs.db").display()),
            Self::Postgres(_, database) => database.url(),
        }
    }

    fn sql(&self, sql: &str) -> String {
        match self {
            Self::Postgres(_, database) => database.sql(sql),
            Self::Sqlite(folder) => {
                let mut command = Command::new("sqlite3");
                command.arg("-bail").arg(folder.path("theirs.db")).arg(".timeout 5000").arg(sql);
                let output = command.output().unwrap();
                assert!(output.status.success(), "{sql}: {output:?}");
                utf8_text(&output.stdout)
            }
        }
    }

    /// What the rule of free users is called: its row's id, or what tells the row apart.
    fn free_rule_id(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "user:{user_id} free",
            Self::Postgres(..) => "1",
        }
    }

    /// A server that reads the table: at short intervals, or only when it is notified.
    fn start_server(&self) -> ServerProcess {
        let (copy, interval) = (self.folder().path("copy"), self.poll_interval());
        let mut command = tidegate_command();
        command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off", "--admin", "127.0.0.1:0"]);
        command.args(["--rules-table", &self.url(), "--rules-table-interval", interval]);
        command.arg("--rules-copy").arg(copy);
        ServerProcess::spawn(command)
    }

    fn poll_interval(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "100ms",
            Self::Postgres(..) => "1h",
        }
    }

    /// Changes the table, and notifies where that is how a server comes to know.
    fn change_and_notify(&self, sql: &str) {
        self.sql(sql);
        if let Self::Postgres(_, database) = self {
            database.sql("NOTIFY tidegate_rules");
        }
    }
}

/// The limits that a request of a free user to the search meets, by rule.
fn limits_met(server: &ServerProcess) -> Vec<(String, u64)> {
    let facts = json!({"user_id": "42", "tier": "free", "method": "GET", "path": "/api/search"});
    limits_by_rule(&mut server.client(), &facts)
}

/// The limit of free users.
fn free_limit(server: &ServerProcess, theirs: &ExternalDatabase) -> u64 {
    let met = limits_met(server);
    let found = met.iter().find(|(id, _)| id == theirs.free_rule_id());
    found.unwrap_or_else(|| panic!("{met:?}")).1
}

fn readyz_body(server: &ServerProcess) -> Value {
    server.client().get("/readyz").body
}

#[track_caller]
fn wait_for_reload_error(server: &ServerProcess, words: &[&str]) {
    wait_for("/readyz to say what is wrong", || {
        let error = readyz_body(server)["reload_error"].as_str()?.to_owned();
        words.iter().all(|word| error.contains(word)).then_some(())
    });
    assert_eq!(readyz_body(server)["status"], "degraded");
}

fn assert_follows_table(theirs: &ExternalDatabase) {
    let server = theirs.start_server();
    let mut numbers: Vec<u64> = limits_met(&server).into_iter().map(|(_, limit)| limit).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [50, 2_000, 100_000], "free users, the endpoint, everything");
    let status = admin_client(&server).get("/v1/status").body["rules"].clone();
    assert_eq!((&status["source"], &status["editable"]), (&json!("table"), &json!(false)));
    let refused =
        admin_client(&server).request("PUT /v1/document", &[("if-match", "*")], "rules: []");
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("rules_read_only")));

    theirs.change_and_notify("UPDATE RateLimitRule SET burst_capacity = 60 WHERE plan = 'free'");
    wait_for("the row that was changed", || (free_limit(&server, theirs) == 60).then_some(()));
    theirs.change_and_notify(
        "UPDATE RateLimitRule SET is_active = FALSE WHERE key_pattern = 'global'",
    );
    wait_for("the row that was switched off", || (limits_met(&server).len() == 2).then_some(()));

    // As a whole: what is right in the same change does not come into force either.
    theirs.change_and_notify(
        "UPDATE RateLimitRule SET burst_capacity = 70 WHERE plan = 'free';
         UPDATE RateLimitRule SET rate_per_second = -1 WHERE key_pattern = 'endpoint:/api/search'",
    );
    let bad = match theirs {
        ExternalDatabase::Sqlite(_) => "rule endpoint:/api/search (rate_per_second)",
        ExternalDatabase::Postgres(..) => "rule 3 (rate_per_second)",
    };
    wait_for_reload_error(&server, &[bad]);
    server.wait_for_log("rate_per_second: this is not a rate");
    server.wait_for_log("the last good ones stay in force");
    assert_eq!(free_limit(&server, theirs), 60);
    server.stop();

    // Also over a restart, from the copy.
    let server = theirs.start_server();
    wait_for_reload_error(&server, &[bad]);
    assert_eq!(free_limit(&server, theirs), 60);
    theirs.change_and_notify(
        "UPDATE RateLimitRule SET rate_per_second = 0.5 WHERE key_pattern = 'endpoint:/api/search'",
    );
    wait_for("all rows to be right", || (free_limit(&server, theirs) == 70).then_some(()));
    assert_eq!(readyz_body(&server)["status"], "ready");
    theirs.change_and_notify("DELETE FROM RateLimitRule");
    wait_for_reload_error(&server, &["the table has no rules any more"]);
    server.wait_for_log("set is_active to false");
    assert_eq!(free_limit(&server, theirs), 70);
}

#[test]
fn rules_follow_sqlite_table() {
    assert_follows_table(&ExternalDatabase::start_sqlite());
}

#[test]
fn rules_follow_postgres_table_on_notify() {
    assert_follows_table(&ExternalDatabase::start_postgres());
}

/// SQLite's file is gone for a while, and another takes its place.
#[test]
fn unreadable_table_keeps_current_rules() {
    let theirs = ExternalDatabase::start_sqlite();
    let server = theirs.start_server();
    let path = theirs.folder().path("theirs.db");
    std::fs::rename(&path, theirs.folder().path("away.db")).unwrap();
    wait_for_reload_error(&server, &["the rules table cannot be read"]);
    // The reason depends on whether the file went away before it was opened or after.
    server.wait_for_log("the rules database is gone: the rules in force stay");
    assert_eq!(free_limit(&server, &theirs), 50);
    server.stop();
    let server = theirs.start_server();
    assert_eq!(free_limit(&server, &theirs), 50, "from the copy");
    theirs.sql(&CREATE_TABLE.replace("NOW()", "CURRENT_TIMESTAMP"));
    theirs.sql(&INSERT_ROWS.replace("10, 50,", "10, 51,"));
    wait_for("the other file", || (free_limit(&server, &theirs) == 51).then_some(()));
    wait_for("/readyz", || (readyz_body(&server)["status"] == "ready").then_some(()));
}

/// Settings come from the `server:` section as from flags, and columns may have other names.
#[test]
fn renamed_columns_and_file_settings_work() {
    let theirs = ExternalDatabase::start_sqlite();
    theirs.sql(
        "CREATE VIEW limits AS SELECT rowid AS number, key_pattern AS pattern, scope,
         rate_per_second AS rate, burst_capacity AS burst, plan AS tier FROM RateLimitRule",
    );
    let columns = "rule_id=number,key_pattern=pattern,rate_per_second=rate,burst_capacity=burst,\
                   plan=tier,is_active=,description=";
    let file = theirs.folder().write(
        "rules.yaml",
        format!(
            "server: {{ rules_table: \"sqlite:theirs.db#Limits\", rules_table_interval: 100ms,\n  \
             rules_table_columns: \"{columns}\" }}\n\
             identity: {{ api_key: {{ header: x-api-key }}, tier: {{ subject: api_key, default: free }} }}\n\
             subjects: [{{ api_key: paid-key, tier: pro }}]\n"
        ),
    );
    let server = super::start_server(&file, &[]);
    let limit = |key: &str| {
        let facts = json!({ "user_id": "42", "api_key": key });
        limits_by_rule(&mut server.client(), &facts).first().cloned()
    };
    assert_eq!(limit("paid-key"), Some(("2".to_owned(), 500)), "of a subject of the file");
    assert_eq!(limit("other"), Some(("1".to_owned(), 50)));
    theirs.folder().replace_atomically(
        "rules.yaml",
        std::fs::read_to_string(&file).unwrap().replace("default: free", "default: pro"),
    );
    wait_for("the file's settings", || (limit("other")?.1 == 500).then_some(()));
}

#[test]
fn invalid_table_settings_fail_startup() {
    let theirs = ExternalDatabase::start_sqlite();
    let url = theirs.url();
    let rules = theirs.folder().write("rules.yaml", "rules: [{ id: x, limit: 1/s }]");
    let rules = rules.to_str().unwrap();
    let wrong_table = format!("{url}#NoSuchTable");
    let database = theirs.folder().database_url();
    for (args, code, words) in [
        (&["--rules-table", &wrong_table][..], 3, "there is no table `NoSuchTable`"),
        (
            &["--rules-table", &url, "--rules-table-columns", "plan=tier"],
            3,
            "has no column `tier`, it has rule_id, key_pattern",
        ),
        (&["--rules-table", &url, "--rules-table-columns", "plam=x"], 2, "no field of a rule"),
        (&["--rules-table", &url, "--config", rules], 2, "says that they come from a table"),
        (&["--rules-table", &url, "--rules-db", &database], 2, "both say where the rules are"),
        (&["--rules-table", "mysql://ann:sesame@db/x"], 2, "rules are not kept in `mysql:`"),
        (&["--rules-table", "sqlite:/nowhere/x.db"], 3, "there is no such file"),
    ] {
        let mut command = tidegate_command();
        command.args(["serve", "--http", "127.0.0.1:0"]).args(args);
        let output = command.current_dir(theirs.folder().path(".")).output().unwrap();
        let said = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words) && !said.contains("sesame"), "{args:?}: {said}");
    }
}

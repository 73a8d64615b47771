//! `--rules-table`: rules in a table that other programs edit, in SQLite and in PostgreSQL.

use std::process::Command;

use serde_json::{Value, json};
use tidegate_testkit::postgres::TestDatabase;

use super::{admin_client, limits_by_rule};
use crate::support::{ServerProcess, TestFolder, tidegate_command, utf8_text, wait_for};

/// The table as a common rate limiter design defines it.
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

/// Example rows of that design.
const INSERT_ROWS: &str = "
INSERT INTO RateLimitRule (key_pattern, scope, rate_per_second, burst_capacity, plan) VALUES
    ('user:{user_id}', 'user', 10, 50, 'free'),
    ('user:{user_id}', 'user', 100, 500, 'pro'),
    ('endpoint:/api/search', 'endpoint', 1000, 2000, NULL),
    ('global', 'global', 50000, 100000, NULL);";

/// Another program's database that contains the rule table.
enum ExternalDatabase {
    Sqlite(TestFolder),
    Postgres(TestFolder, TestDatabase),
}

impl ExternalDatabase {
    /// SQLite has no `NOW()`. It accepts all column types, but does not fill a `BIGSERIAL`.
    fn start_sqlite() -> Self {
        let external = Self::Sqlite(TestFolder::new());
        external.sql(&CREATE_TABLE.replace("NOW()", "CURRENT_TIMESTAMP"));
        external.sql(INSERT_ROWS);
        external
    }

    fn start_postgres() -> Self {
        let external = Self::Postgres(TestFolder::new(), TestDatabase::create());
        external.sql(CREATE_TABLE);
        external.sql(INSERT_ROWS);
        external
    }

    fn folder(&self) -> &TestFolder {
        match self {
            Self::Sqlite(folder) | Self::Postgres(folder, _) => folder,
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path("external.db").display()),
            Self::Postgres(_, database) => database.url(),
        }
    }

    fn sql(&self, sql: &str) -> String {
        match self {
            Self::Postgres(_, database) => database.sql(sql),
            Self::Sqlite(folder) => {
                let mut command = Command::new("sqlite3");
                command.arg("-bail").arg(folder.path("external.db")).arg(".timeout 5000").arg(sql);
                let output = command.output().unwrap();
                assert!(output.status.success(), "{sql}: {output:?}");
                utf8_text(&output.stdout)
            }
        }
    }

    /// ID of the rule for free users: the row's ID, or else the columns that identify the row.
    fn free_rule_id(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "user:{user_id} free",
            Self::Postgres(..) => "1",
        }
    }

    /// Starts a server that reads the table at short intervals, or only when notified.
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

    /// Changes the table, and on PostgreSQL notifies the server.
    fn change_and_notify(&self, sql: &str) {
        self.sql(sql);
        if let Self::Postgres(_, database) = self {
            database.sql("NOTIFY tidegate_rules");
        }
    }
}

/// The limits that apply to a free user's search request, by rule.
fn limits_met(server: &ServerProcess) -> Vec<(String, u64)> {
    let facts = json!({"user_id": "42", "tier": "free", "method": "GET", "path": "/api/search"});
    limits_by_rule(&mut server.client(), &facts)
}

/// The limit of free users.
fn free_limit(server: &ServerProcess, external: &ExternalDatabase) -> u64 {
    let limits = limits_met(server);
    let found = limits.iter().find(|(id, _)| id == external.free_rule_id());
    found.unwrap_or_else(|| panic!("{limits:?}")).1
}

fn readyz_body(server: &ServerProcess) -> Value {
    server.client().get("/readyz").body
}

#[track_caller]
fn wait_for_reload_error(server: &ServerProcess, words: &[&str]) {
    wait_for("the error in /readyz", || {
        let error = readyz_body(server)["reload_error"].as_str()?.to_owned();
        words.iter().all(|word| error.contains(word)).then_some(())
    });
    assert_eq!(readyz_body(server)["status"], "degraded");
}

fn assert_follows_table(external: &ExternalDatabase) {
    let server = external.start_server();
    let mut numbers: Vec<u64> = limits_met(&server).into_iter().map(|(_, limit)| limit).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [50, 2_000, 100_000], "free users, the endpoint, global");
    let status = admin_client(&server).get("/v1/status").body["rules"].clone();
    assert_eq!((&status["source"], &status["editable"]), (&json!("table"), &json!(false)));
    let refused =
        admin_client(&server).request("PUT /v1/document", &[("if-match", "*")], "rules: []");
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("rules_read_only")));

    external.change_and_notify("UPDATE RateLimitRule SET burst_capacity = 60 WHERE plan = 'free'");
    wait_for("the changed row", || (free_limit(&server, external) == 60).then_some(()));
    external.change_and_notify(
        "UPDATE RateLimitRule SET is_active = FALSE WHERE key_pattern = 'global'",
    );
    wait_for("the disabled row", || (limits_met(&server).len() == 2).then_some(()));

    // All or nothing: the valid part of a change is not applied either.
    external.change_and_notify(
        "UPDATE RateLimitRule SET burst_capacity = 70 WHERE plan = 'free';
         UPDATE RateLimitRule SET rate_per_second = -1 WHERE key_pattern = 'endpoint:/api/search'",
    );
    let bad = match external {
        ExternalDatabase::Sqlite(_) => "rule endpoint:/api/search (rate_per_second)",
        ExternalDatabase::Postgres(..) => "rule 3 (rate_per_second)",
    };
    wait_for_reload_error(&server, &[bad]);
    server.wait_for_log("rate_per_second: this is not a rate");
    server.wait_for_log("the previous rules stay active");
    assert_eq!(free_limit(&server, external), 60);
    server.stop();

    // The same after a restart, with the rules from the local copy.
    let server = external.start_server();
    wait_for_reload_error(&server, &[bad]);
    assert_eq!(free_limit(&server, external), 60);
    external.change_and_notify(
        "UPDATE RateLimitRule SET rate_per_second = 0.5 WHERE key_pattern = 'endpoint:/api/search'",
    );
    wait_for("the corrected rows", || (free_limit(&server, external) == 70).then_some(()));
    assert_eq!(readyz_body(&server)["status"], "ready");
    external.change_and_notify("DELETE FROM RateLimitRule");
    wait_for_reload_error(&server, &["the table no longer has any rules"]);
    server.wait_for_log("set is_active to false");
    assert_eq!(free_limit(&server, external), 70);
}

#[test]
fn rules_follow_sqlite_table() {
    assert_follows_table(&ExternalDatabase::start_sqlite());
}

#[test]
fn rules_follow_postgres_table_on_notify() {
    assert_follows_table(&ExternalDatabase::start_postgres());
}

/// The SQLite file disappears for a while and is replaced by another.
#[test]
fn unreadable_table_keeps_current_rules() {
    let external = ExternalDatabase::start_sqlite();
    let server = external.start_server();
    let path = external.folder().path("external.db");
    std::fs::rename(&path, external.folder().path("away.db")).unwrap();
    wait_for_reload_error(&server, &["the rules table cannot be read"]);
    // The reason depends on whether the file disappeared before or after it was opened.
    server.wait_for_log("the rules database is unavailable; the active rules stay in use");
    assert_eq!(free_limit(&server, &external), 50);
    server.stop();
    let server = external.start_server();
    assert_eq!(free_limit(&server, &external), 50, "from the copy");
    external.sql(&CREATE_TABLE.replace("NOW()", "CURRENT_TIMESTAMP"));
    external.sql(&INSERT_ROWS.replace("10, 50,", "10, 51,"));
    wait_for("the other file", || (free_limit(&server, &external) == 51).then_some(()));
    wait_for("/readyz", || (readyz_body(&server)["status"] == "ready").then_some(()));
}

/// The `server:` section accepts the same settings as flags, and columns may have other names.
#[test]
fn renamed_columns_and_file_settings_work() {
    let external = ExternalDatabase::start_sqlite();
    external.sql(
        "CREATE VIEW limits AS SELECT rowid AS number, key_pattern AS pattern, scope,
         rate_per_second AS rate, burst_capacity AS burst, plan AS tier FROM RateLimitRule",
    );
    let columns = "rule_id=number,key_pattern=pattern,rate_per_second=rate,burst_capacity=burst,\
                   plan=tier,is_active=,description=";
    let file = external.folder().write(
        "rules.yaml",
        format!(
            "server: {{ rules_table: \"sqlite:external.db#Limits\", rules_table_interval: 100ms,\n  \
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
    assert_eq!(limit("paid-key"), Some(("2".to_owned(), 500)), "a subject from the file");
    assert_eq!(limit("other"), Some(("1".to_owned(), 50)));
    external.folder().replace_atomically(
        "rules.yaml",
        std::fs::read_to_string(&file).unwrap().replace("default: free", "default: pro"),
    );
    wait_for("the file's settings", || (limit("other")?.1 == 500).then_some(()));
}

#[test]
fn invalid_table_settings_fail_startup() {
    let external = ExternalDatabase::start_sqlite();
    let url = external.url();
    let rules = external.folder().write("rules.yaml", "rules: [{ id: x, limit: 1/s }]");
    let rules = rules.to_str().unwrap();
    let wrong_table = format!("{url}#NoSuchTable");
    let database = external.folder().database_url();
    for (args, code, words) in [
        (&["--rules-table", &wrong_table][..], 3, "there is no table `NoSuchTable`"),
        (
            &["--rules-table", &url, "--rules-table-columns", "plan=tier"],
            3,
            "has no column `tier`, only rule_id, key_pattern",
        ),
        (&["--rules-table", &url, "--rules-table-columns", "plam=x"], 2, "is not a rule field"),
        (&["--rules-table", &url, "--config", rules], 2, "says to read the rules from a table"),
        (&["--rules-table", &url, "--rules-db", &database], 2, "both are the source of the rules"),
        (&["--rules-table", "mysql://ann:sesame@db/x"], 2, "`mysql:` is not a supported database"),
        (&["--rules-table", "sqlite:/nowhere/x.db"], 3, "there is no such file"),
    ] {
        let mut command = tidegate_command();
        command.args(["serve", "--http", "127.0.0.1:0"]).args(args);
        let output = command.current_dir(external.folder().path(".")).output().unwrap();
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(words) && !errors.contains("sesame"), "{args:?}: {errors}");
    }
}

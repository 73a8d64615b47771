//! The texts that `--help` prints after the options: examples, notes and exit codes.

use anstyle::{AnsiColor, Style};
use clap::builder::Styles;

/// The description at the top of `tidegate --help`.
pub(super) const ABOUT: &str = "Tidegate decides which requests pass.\n\n\
    One set of rules, exact counters, one answer: allowed or refused, and when to retry.";

/// The colors of the help; clap omits them when stdout is not a terminal.
pub(super) const STYLES: Styles = Styles::styled()
    .header(Style::new().bold())
    .usage(Style::new().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(Style::new().dimmed());

/// After `tidegate --help`.
pub(super) const PROGRAM: &str = "\
Start here:
  tidegate demo                                     try it out: clients, limits and a dashboard
  tidegate serve                                    a limiter with built-in example rules
  tidegate serve --limit \"100/min by ip burst 20\"   one rule, no file
  tidegate serve --config rules.yaml                your rules, reloaded when the file changes
  tidegate serve --upstream http://127.0.0.1:3000   a gateway in front of an API
  tidegate config check rules.yaml                  find errors in the file
  tidegate explain ip=203.0.113.7 path=/login       why a request passes or not
  tidegate serve --store redis://10.0.0.5:6379      counters shared by several nodes
  tidegate doctor --store redis://10.0.0.5:6379     check that store's setup and latency
  tidegate rules list                               the rules of a running server
  tidegate rules apply rules.yaml                   change them, after showing the difference
  tidegate violations --since 1h --top              the clients refused most
  tidegate keys                                     the busiest and most refused keys now
  tidegate top                                      watch a running server live

Every flag can also be set by an environment variable named TIDEGATE_ plus the flag's name.
Flags override environment variables, which override the document.

Exit codes: 0 success, 1 the answer is no (refused, invalid), 2 wrong usage, 3 failed.";

/// After `tidegate serve --help`.
pub(super) const SERVE: &str = "\
Examples:
  tidegate serve
  tidegate serve --limit \"10/s by api_key burst 20\" --limit \"1000/h by ip\"
  tidegate serve --upstream http://127.0.0.1:3000 --limit \"100/min by ip burst 20\"
  tidegate serve --upstream http://10.0.0.5 --limit \"2/s by api_key\" --api-key-header x-api-key
  tidegate serve --config rules.yaml --http 0.0.0.0:8081 --admin-token-file token
  tidegate serve --config rules.yaml --grpc 10.0.0.7:8082            for Envoy on other machines
  tidegate serve --config rules.yaml --snapshot counters.snap --http 127.0.0.1:0
  tidegate serve --config rules.yaml --store redis://10.0.0.5:6379 --key-secret-file secret
  tidegate serve --config rules.yaml --http unix:/run/tidegate/http.sock      for nginx here
  tidegate serve --config rules.yaml --otlp http://127.0.0.1:4318             traces to a collector
  redis-cli -p 8083 CL.THROTTLE user:7 15 30 60      a check over the RESP listener

The server reloads the rules when the file changes or on SIGHUP. If the file has errors, the
previous rules stay active.
SIGTERM and SIGINT stop the server after in-flight requests complete; a second signal stops it at
once. SIGUSR2 hands the listeners over to a new process without losing a request.
All settings except --config, --limit, --facts and --api-key-header can also be set in the document
under `server:`, with underscores instead of dashes. Relative paths there are relative to the
document. For --facts and --api-key-header, the document has `facts: [tenant]` and
`identity: { api_key: { header: x-api-key } }`.";

/// After `tidegate demo --help`.
pub(super) const DEMO: &str = "\
Examples:
  tidegate demo
  tidegate demo --for 30s
  tidegate demo --admin 127.0.0.1:0        any free port

The demo listens on the loopback interface only and picks free ports if the default ones are taken.
It sends itself about 230 requests per second and prints the address of the dashboard. You can
change the rules there; they are in a temporary folder that is removed when the demo ends.";

/// After `tidegate check --help`.
pub(super) const CHECK: &str = "\
Examples:
  tidegate check ip=203.0.113.7 method=POST path=/api/orders api_key=demo
  tidegate check user_id=42 --cost 5 --server http://limiter.internal:8081
  tidegate check ip=203.0.113.7 --limit \"10/s by ip\"       in this process, on fresh counters
  tidegate check tier=free path=/api/x --config rules.yaml --json

Exit codes: 0 allowed, 1 refused, 2 wrong usage, 3 no answer.";

/// After `tidegate explain --help`.
pub(super) const EXPLAIN: &str = "\
Examples:
  tidegate explain ip=203.0.113.7 method=POST path=/api/orders api_key=demo
  tidegate explain tier=free path=/api/x --config rules.yaml    in this process, fresh counters
  tidegate explain user_id=42 --json

Explain does not use any quota.

Exit codes: 0 it would be allowed, 1 it would be refused, 2 wrong usage, 3 no answer.";

/// After `tidegate doctor --help`.
pub(super) const DOCTOR: &str = "\
Examples:
  tidegate doctor --store redis://127.0.0.1:6379
  tidegate doctor --store redis+cluster://10.0.0.1,10.0.0.2,10.0.0.3 --store-user tidegate
  tidegate doctor --config rules.yaml --json
  tidegate doctor --config rules.yaml --region eu --region-store us=redis://redis.us.example:6379

The only data it writes is a test counter, which limits no client.

Exit codes: 0 usable (warnings included), 1 not usable, 2 wrong usage, 3 failed.";

/// After `tidegate bench --help`.
pub(super) const BENCH: &str = "\
Examples:
  tidegate bench
  tidegate bench --config rules.yaml --threads 2 --keys 1000000
  tidegate bench --limit \"100/min by ip\" --seconds 10 --json

The benchmark generates requests that your rules govern and decides them with the in-memory store,
without a network. Without rules it uses the built-in example rules.";

/// After `tidegate config check --help`.
pub(super) const CONFIG_CHECK: &str = "\
Examples:
  tidegate config check rules.yaml
  tidegate config check rules.yaml --json | jq '.[].message'

All errors are reported at once, each with its line and what to write instead. With --json the
output is a list of errors, which is empty if there are none.

Exit codes: 0 valid, 1 not valid, 2 wrong usage, 3 the file could not be read.";

/// After `tidegate route --help`.
pub(super) const ROUTE: &str = "\
Examples:
  tidegate route --config rules.yaml path=/orders api_key=demo
  tidegate route --config rules.yaml host=api.example.com path=/ x-session=4711 --json

Reads the document only: it shows the order in which a key prefers the servers. The first one that
is healthy and below 1.25 times the mean load gets the request.

Exit codes: 0 a route matches, 1 no route matches or the document is not valid, 2 wrong usage,
3 the file could not be read.";

/// After `tidegate import envoy-ratelimit --help`.
pub(super) const IMPORT_ENVOY: &str = "\
Examples:
  tidegate import envoy-ratelimit /srv/runtime_data/current/ratelimit/config > rules.yaml
  tidegate import envoy-ratelimit edge.yaml internal.yaml > rules.yaml
  tidegate serve --config rules.yaml

The document is written to stdout. Everything without an equivalent is listed on stderr, one line
each: its location, the reason, and what to do instead. All files form one configuration.

Exit codes: 0 everything was converted, 1 something has no equivalent or a file is not valid,
2 wrong usage, 3 a file could not be read.";

/// After `tidegate import limitador --help`.
pub(super) const IMPORT_LIMITADOR: &str = "\
Examples:
  tidegate import limitador limits.yaml > rules.yaml
  tidegate serve --config rules.yaml

The document is written to stdout. Everything without an equivalent is listed on stderr, one line
each: its location, the reason, and what to do instead. A limit with an unsupported condition is
omitted.

Exit codes: 0 everything was converted, 1 something has no equivalent or the file is not valid,
2 wrong usage, 3 the file could not be read.";

/// After `tidegate rules apply --help`.
pub(super) const RULES_APPLY: &str = "\
Examples:
  tidegate rules apply rules.yaml --reason \"raise partner limits\"
  tidegate rules apply rules.yaml --yes --admin http://10.0.0.7:8084 --token-file token

Replaces all rules and settings with those of the document. Subjects listed in it are added or
changed; other subjects and all overrides stay. If the rules change on the server before you
confirm, the command fails and applies nothing.

Exit codes: 0 applied, or nothing to change; 1 not valid, not confirmed, or changed meanwhile;
2 wrong usage; 3 failed.";

/// After `tidegate rules diff --help`.
pub(super) const RULES_DIFF: &str = "\
Exit codes: 0 no difference, 1 a difference or not valid, 2 wrong usage, 3 failed.";

/// After `tidegate rules export --help`.
pub(super) const RULES_EXPORT: &str = "\
Examples:
  tidegate rules export > rules.yaml
  tidegate rules export --format json | jq '.rules[].id'

The document does not contain subjects and overrides, because API keys are stored only as hashes.";

/// After `tidegate override set --help`.
pub(super) const OVERRIDE_SET: &str = "\
Examples:
  tidegate override set per-user user_id=42 --requests 500 --for 30d --note \"launch week\"
  tidegate override set free-hourly --api-key-file key.txt --requests unlimited --until 2026-12-31
  tidegate override set per-client ip=203.0.113.7 --requests deny

An existing override is replaced after confirmation; --yes skips the prompt.";

/// After `tidegate subject set --help`.
pub(super) const SUBJECT_SET: &str = "\
Examples:
  tidegate subject set user_id=42 tier=paid
  tidegate subject set tier=paid --api-key-file key.txt
  pass show acme/key | tidegate subject set tier=paid tenant=acme --api-key-file -

An existing subject is replaced after confirmation; --yes skips the prompt.";

/// After `tidegate reset --help`.
pub(super) const RESET: &str = "\
Examples:
  tidegate reset ip=203.0.113.7                 every counter of a client
  tidegate reset login ip=203.0.113.7           its counter of one rule
  tidegate reset --api-key-file key.txt
  tidegate reset login --all                    all clients' counters of one rule; asks first

Counters, warnings and bans are found by the facts in their keys; method and path are not needed.
For rules that count by endpoint, the counters of all declared patterns are reset.
`tidegate keys ip=203.0.113.7` lists them. A counter shared by all clients is reset only if you name
its rule.

Exit codes: 0 reset, 1 no rule counts by these facts, 2 wrong usage, 3 failed.";

/// After `tidegate violations --help`.
pub(super) const VIOLATIONS: &str = "\
Examples:
  tidegate violations --since 1h --top
  tidegate violations --rule login --ip 203.0.113.7
  tidegate violations --follow

Users and addresses are shown as hashes (h:…) unless the server was started with
--violations-identity plain. You can search by user or address either way.";

/// After `tidegate keys --help`.
pub(super) const KEYS: &str = "\
Examples:
  tidegate keys
  tidegate keys --kind busiest --rule login --max 10
  tidegate keys ip=203.0.113.7                  every counter of one client, warnings and bans
  tidegate keys --api-key-file key.txt --rule login

Counts are for the last 1-2 minutes; each may be overstated by at most the number after the minus.
Under heavy load only a sample is counted; ± is then twice the standard deviation. API keys are
shown as hashes (h:…).";

/// After `tidegate top --help`.
pub(super) const TOP_COMMAND: &str = "\
Examples:
  tidegate top
  tidegate top --admin http://10.0.0.7:8084 --token-file token
  tidegate top --once                                one snapshot as text
  tidegate top --json | jq '.rules[] | {id, refused_per_second}'

Overall rates cover the last 10 s, rates per rule the last minute, as on the dashboard.
Keys: s sort, r reverse, / filter, p pause, ? help, q quit. If the connection to the server is lost,
the last numbers stay until it is restored. NO_COLOR=1 turns colors off.

Exit codes: 0 success, 2 wrong usage, 3 no answer.";

/// After `tidegate db migrate --help`.
pub(super) const DB_MIGRATE: &str = "\
Examples:
  tidegate db migrate --rules-db sqlite:rules.db
  TIDEGATE_RULES_DB=postgres://… tidegate db migrate

`tidegate serve` does the same when it starts. Run this command first if the database user of
`tidegate serve` is not allowed to create tables.

Exit codes: 0 up to date, 2 wrong usage, 3 failed.";

//! The longer help texts, with examples that can be copied.

use anstyle::{AnsiColor, Style};
use clap::builder::Styles;

/// What the program is.
pub(super) const ABOUT: &str = "Tidegate decides which requests pass.\n\n\
    One set of rules, exact counters, one answer: allowed or refused, and when to retry.";

/// Quiet colours; clap leaves them out where there is no terminal.
pub(super) const STYLES: Styles = Styles::styled()
    .header(Style::new().bold())
    .usage(Style::new().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(Style::new().dimmed());

/// After `tidegate --help`.
pub(super) const PROGRAM: &str = "\
Start here:
  tidegate demo                                     see it work: clients, limits and a dashboard
  tidegate serve                                    a limiter on built-in example rules
  tidegate serve --limit \"100/min by ip burst 20\"   one rule, no file
  tidegate serve --config rules.yaml                your rules, reloaded when the file changes
  tidegate serve --upstream http://127.0.0.1:3000   a gateway in front of an API
  tidegate config check rules.yaml                  is the file right, and if not, what to write
  tidegate explain ip=203.0.113.7 path=/login       why a request passes or not
  tidegate serve --store redis://10.0.0.5:6379      counters that several nodes share
  tidegate doctor --store redis://10.0.0.5:6379     is that store fit for it, and how fast
  tidegate rules list                               the rules of a running server
  tidegate rules apply rules.yaml                   change them: shows the difference and asks
  tidegate violations --since 1h --top              who was refused most
  tidegate keys                                     who asks most, and is refused most, now
  tidegate top                                      watch all of that as it happens

Every flag has an environment variable, TIDEGATE_ and its name. A setting in the file gives way
to the environment, and that to the flag.

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
  redis-cli -p 8083 CL.THROTTLE user:7 15 30 60      asks the RESP listener, which Redis clients use

The rules are read again when the file changes or on SIGHUP; a file with mistakes changes nothing.
SIGTERM and SIGINT stop it: requests under way are answered first, a second signal does not wait.
SIGUSR2 lets a new process take over the listeners; no request is lost.
Every setting but --config, --limit, --facts and --api-key-header may also stand in the document,
under `server:`, with underscores for dashes; relative paths there start at the document. There,
`facts: [tenant]` and `identity: { api_key: { header: x-api-key } }` say what the last two do.";

/// After `tidegate demo --help`.
pub(super) const DEMO: &str = "\
Examples:
  tidegate demo
  tidegate demo --for 30s
  tidegate demo --admin 127.0.0.1:0        any free port

It listens on this machine only, on free ports where the usual ones are taken, sends itself
about 230 requests a second, and prints where the dashboard is. Rules may be changed there; they are
in a temporary folder that is removed when it ends.";

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

Nothing is charged.

Exit codes: 0 it would be allowed, 1 it would be refused, 2 wrong usage, 3 no answer.";

/// After `tidegate doctor --help`.
pub(super) const DOCTOR: &str = "\
Examples:
  tidegate doctor --store redis://127.0.0.1:6379
  tidegate doctor --store redis+cluster://10.0.0.1,10.0.0.2,10.0.0.3 --store-user tidegate
  tidegate doctor --config rules.yaml --json

It charges a counter of its own that limits nobody, and changes nothing else.

Exit codes: 0 usable (warnings included), 1 not usable, 2 wrong usage, 3 failed.";

/// After `tidegate bench --help`.
pub(super) const BENCH: &str = "\
Examples:
  tidegate bench
  tidegate bench --config rules.yaml --threads 2 --keys 1000000
  tidegate bench --limit \"100/min by ip\" --seconds 10 --json

It makes up requests that your rules govern and decides them on embedded memory, with no network.
Without rules it measures the built-in example.";

/// After `tidegate config check --help`.
pub(super) const CONFIG_CHECK: &str = "\
Examples:
  tidegate config check rules.yaml
  tidegate config check rules.yaml --json | jq '.[].message'

Every mistake is told at once, with its line and what to write instead. With --json the answer is
a list of them, empty when there are none.

Exit codes: 0 valid, 1 not valid, 2 wrong usage, 3 the file could not be read.";

/// After `tidegate import envoy-ratelimit --help`.
pub(super) const IMPORT_ENVOY: &str = "\
Examples:
  tidegate import envoy-ratelimit /srv/runtime_data/current/ratelimit/config > rules.yaml
  tidegate import envoy-ratelimit edge.yaml internal.yaml > rules.yaml
  tidegate serve --config rules.yaml

The document goes to stdout. What has no equivalent is listed on stderr, a line for each: where it
stands, why, and what to do instead. All files together are one configuration.

Exit codes: 0 all was carried over, 1 something has no equivalent or a file is not valid, 2 wrong
usage, 3 a file could not be read.";

/// After `tidegate import limitador --help`.
pub(super) const IMPORT_LIMITADOR: &str = "\
Examples:
  tidegate import limitador limits.yaml > rules.yaml
  tidegate serve --config rules.yaml

The document goes to stdout. What has no equivalent is listed on stderr, a line for each: where it
stands, why, and what to do instead. A limit with a condition that is not understood is left out.

Exit codes: 0 all was carried over, 1 something has no equivalent or the file is not valid, 2 wrong
usage, 3 the file could not be read.";

/// After `tidegate rules apply --help`.
pub(super) const RULES_APPLY: &str = "\
Examples:
  tidegate rules apply rules.yaml --reason \"more for partners\"
  tidegate rules apply rules.yaml --yes --admin http://10.0.0.7:8084 --token-file token

Rules and settings become what the document says; subjects that it lists are added or changed, other
subjects and all overrides stay. Somebody else's change between the comparison and the answer is an
error, and nothing is applied.

Exit codes: 0 applied, or nothing to change; 1 not valid, refused, or changed meanwhile; 2 wrong
usage; 3 failed.";

/// After `tidegate rules diff --help`.
pub(super) const RULES_DIFF: &str = "\
Exit codes: 0 no difference, 1 a difference or not valid, 2 wrong usage, 3 failed.";

/// After `tidegate rules export --help`.
pub(super) const RULES_EXPORT: &str = "\
Examples:
  tidegate rules export > rules.yaml
  tidegate rules export --format json | jq '.rules[].id'

Subjects and overrides are not in it: of API keys only hashes are known.";

/// After `tidegate override set --help`.
pub(super) const OVERRIDE_SET: &str = "\
Examples:
  tidegate override set per-user user_id=42 --requests 500 --for 30d --note \"launch week\"
  tidegate override set free-hourly --api-key-file key.txt --requests unlimited --until 2026-12-31
  tidegate override set per-client ip=203.0.113.7 --requests deny

One that is there already is replaced after asking; --yes does not ask.";

/// After `tidegate subject set --help`.
pub(super) const SUBJECT_SET: &str = "\
Examples:
  tidegate subject set user_id=42 tier=paid
  tidegate subject set tier=paid --api-key-file key.txt
  pass show acme/key | tidegate subject set tier=paid tenant=acme --api-key-file -

One that is there already is replaced after asking; --yes does not ask.";

/// After `tidegate reset --help`.
pub(super) const RESET: &str = "\
Examples:
  tidegate reset ip=203.0.113.7                 every counter of a client
  tidegate reset login ip=203.0.113.7           its counter of one rule
  tidegate reset --api-key-file key.txt
  tidegate reset login --all                    all clients' counters of one rule; asks first

Counters, warnings and bans are found by the facts in their keys; method and path need not be known.
Where a key has the endpoint, each declared pattern is reset. `tidegate keys ip=203.0.113.7` lists
them. A counter that all clients share is reset only by the name of its rule.

Exit codes: 0 reset, 1 no rule counts this, 2 wrong usage, 3 failed.";

/// After `tidegate violations --help`.
pub(super) const VIOLATIONS: &str = "\
Examples:
  tidegate violations --since 1h --top
  tidegate violations --rule login --ip 203.0.113.7
  tidegate violations --follow

Users and addresses are shown as hashes (h:…) unless the server was started with
--violations-identity plain. Whom you name is found either way.";

/// After `tidegate keys --help`.
pub(super) const KEYS: &str = "\
Examples:
  tidegate keys
  tidegate keys --kind busiest --rule login --most 10
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
  tidegate top --once                                one snapshot as text, also where it is piped
  tidegate top --json | jq '.rules[] | {id, refused_per_second}'

Rates of all decisions are of the last 10 s, those of rules of the last minute, as on the dashboard.
Keys: s sort, r reverse, / filter, p pause, ? help, q quit. When the server is gone, the last
numbers stay until it is back. NO_COLOR=1 leaves the colours out.

Exit codes: 0 success, 2 wrong usage, 3 no answer.";

/// After `tidegate db migrate --help`.
pub(super) const DB_MIGRATE: &str = "\
Examples:
  tidegate db migrate --rules-db sqlite:rules.db
  TIDEGATE_RULES_DB=postgres://… tidegate db migrate

`tidegate serve` does the same when it starts. This is for a start with a user who may not make tables.

Exit codes: 0 up to date, 2 wrong usage, 3 failed.";

//! One run: moves true time from event to event, and checks every decision.

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Algorithm;
use tidegate_limiter::SeededBug;

use crate::checker::Checker;
use crate::clock::{MAX_DRIFT_PPM, MachineClock};
use crate::executor::{Executor, Spawner};
use crate::fault::FaultKind;
use crate::node::{Node, NodeParts, Report, Reports, Request};
use crate::random::Random;
use crate::rule_spec::{RuleSpec, compile_rules};
use crate::scenario::{RECOVERY, Scenario};
use crate::sim_store::{NodeLink, StoreMessage};
use crate::store_server::StoreServer;
use crate::world::{Event, World};

/// How a run is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The bug to switch on.
    pub bug: Option<SeededBug>,
    /// Whether the events are kept as text.
    pub keeps_trace: bool,
}

/// What a run amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Requests decided.
    pub decided: u64,
    /// Requests admitted.
    pub admitted: u64,
    /// Calls to the store.
    pub store_calls: u64,
    /// Units that nodes spent of leases.
    pub leased_units: u64,
    /// Events in the trace.
    pub events: u64,
    /// A hash of the trace: equal for equal runs.
    pub digest: u64,
    /// What was wrong, if anything.
    pub violation: Option<String>,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decided, admitted, store_calls, leased_units, .. } = self;
        write!(
            f,
            "{decided} requests decided, {admitted} admitted, {leased_units} units spent of \
             leases, {store_calls} store calls"
        )
    }
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, options: RunOptions) -> RunSummary {
    let scenario = Scenario::draw(seed);
    match Simulation::new(scenario, options) {
        Ok(mut simulation) => simulation.run(),
        Err(error) => RunSummary {
            decided: 0,
            admitted: 0,
            store_calls: 0,
            leased_units: 0,
            events: 0,
            digest: 0,
            violation: Some(error),
            trace: Vec::new(),
        },
    }
}

struct Simulation {
    world: World,
    executor: Executor,
    spawner: Spawner,
    reports: Reports,
    scenario: Scenario,
    bug: Option<SeededBug>,
    random: Random,
    server: StoreServer,
    /// Until when the store's process stands still.
    server_stopped_until: u64,
    /// All nodes that ever were.
    nodes: Vec<Node>,
    /// For each place in the fleet, the node that holds it.
    fleet: Vec<usize>,
    version: usize,
    edit: Option<EditInProgress>,
    checker: Checker,
    decided: u64,
    admitted: u64,
    violation: Option<String>,
}

struct EditInProgress {
    version: usize,
    disturbance: usize,
    /// Nodes that do not have the rules yet.
    missing: Vec<usize>,
}

const START: u64 = 1_700_000_000_000_000;
const CHECK_EVERY: u64 = 100_000;
const HEARTBEAT_EVERY: u64 = 200_000;

impl Simulation {
    fn new(scenario: Scenario, options: RunOptions) -> Result<Self, String> {
        let world = World::new(options.keeps_trace);
        let mut random = scenario.random.clone();
        let start = START + random.below(10_000_000);
        let clock = MachineClock::new(world.time.clone(), start, scenario.store_ppm);
        let checker = Checker::new(&scenario.rules, scenario.store_ppm, &clock);
        let executor = Executor::default();
        let mut simulation = Self {
            spawner: executor.spawner(),
            world,
            executor,
            reports: Reports::default(),
            bug: options.bug,
            random,
            server: StoreServer::new(clock),
            server_stopped_until: 0,
            nodes: Vec::new(),
            fleet: Vec::new(),
            version: 0,
            edit: None,
            checker,
            decided: 0,
            admitted: 0,
            violation: None,
            scenario,
        };
        for _ in 0..simulation.scenario.nodes {
            let node = simulation.start_node()?;
            simulation.fleet.push(node);
        }
        simulation.schedule_all();
        Ok(simulation)
    }

    fn schedule_all(&mut self) {
        for (index, fault) in self.scenario.faults.iter().enumerate() {
            self.world.schedule(fault.at, Event::Fault(index));
        }
        for stream in 0..self.scenario.streams.len() {
            self.world.schedule(0, Event::Arrival { stream });
        }
        self.world.schedule(0, Event::Heartbeat);
        self.world.schedule(CHECK_EVERY, Event::Check);
        let scenario = &self.scenario;
        self.world.trace.record(0, || format!("{scenario:#?}"));
    }

    fn run(&mut self) -> RunSummary {
        let end = self.scenario.end();
        self.run_until(end);
        if self.violation.is_none() {
            let result = self.check_end();
            self.violation = result.err();
        }
        self.summary()
    }

    fn run_until(&mut self, end: u64) {
        loop {
            while self.executor.run_one() {
                self.process_reports();
            }
            if self.violation.is_some() {
                return;
            }
            let Some(event) = self.world.next_event(end) else { return };
            let result = self.handle(event);
            self.violation = result.err();
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Wake(waker) => waker.wake(),
            Event::Message(message) => self.deliver(message),
            Event::Answer(answer) => {
                let link = &self.nodes[answer.node].link;
                link.deliver(&answer.call, answer.connection, answer.answer);
            }
            Event::Arrival { stream } => self.arrive(stream),
            Event::Fault(index) => return self.inject(self.scenario.faults[index].kind),
            Event::Heartbeat => {
                self.send_heartbeats();
                self.world.schedule(self.world.now() + HEARTBEAT_EVERY, Event::Heartbeat);
            }
            Event::Check => {
                self.world.schedule(self.world.now() + CHECK_EVERY, Event::Check);
                return self.check_now(false);
            }
        }
        Ok(())
    }

    /// The store's machine runs a request, unless the connection was cut meanwhile.
    fn deliver(&mut self, message: Box<StoreMessage>) {
        if self.world.now() < self.server_stopped_until {
            return self.world.schedule(self.server_stopped_until, Event::Message(message));
        }
        let link = self.nodes[message.node].link.clone();
        if !link.carries(message.connection) {
            return;
        }
        let answer = self.server.process(*message, &self.world);
        self.world.schedule(link.answer_arrives_at(), Event::Answer(Box::new(answer)));
    }

    fn arrive(&mut self, index: usize) {
        let (now, stream) = (self.world.now(), self.scenario.streams[index]);
        let is_recovery = now > self.scenario.faults_end;
        // Sufficient demand: two and a half times the limit, in requests of cost 1.
        let gap = match (is_recovery && self.scenario.measured > 0, index) {
            (true, 0) => 400_000 / self.main_rule().rate().max(1),
            _ => stream.gap,
        };
        let next = now + self.random.between(gap / 2, gap * 3 / 2).max(1);
        self.world.schedule(next, Event::Arrival { stream: index });
        let cost = if is_recovery { 1 } else { self.random.between(1, stream.max_cost) };
        let refunds = !is_recovery && self.random.percent(self.scenario.refund_percent);
        let longest = 3 * self.main_rule().ttl_micros().max(10_000);
        self.decided += 1;
        let request = Request {
            number: self.decided,
            client: stream.client,
            is_for_all_rules: !is_recovery && self.random.percent(stream.all_rules_percent),
            cost: u32::try_from(cost).unwrap_or(1),
            refund_after: refunds.then(|| self.random.below(longest)),
        };
        let place = self.place_for(now);
        self.nodes[self.fleet[place]].handle(request);
    }

    /// One node gets eight times as many requests as each other one, in turn.
    fn place_for(&mut self, now: u64) -> usize {
        let places = self.fleet.len() as u64;
        // Units that a node holds when its demand moves away may be lost, so full use needs demand
        // that moves less often.
        let is_recovery = now > self.scenario.faults_end;
        let busiest_for = if is_recovery { 1_000_000 } else { self.scenario.busiest_for };
        let busiest = now / busiest_for % places;
        let drawn = self.random.below(places + 7);
        usize::try_from(if drawn < places { drawn } else { busiest }).unwrap_or(0)
    }

    fn main_rule(&self) -> &RuleSpec {
        &self.rules_of(self.version)[0]
    }

    fn rules_of(&self, version: usize) -> &[RuleSpec] {
        match version.checked_sub(1) {
            None => &self.scenario.rules,
            Some(edit) => &self.scenario.edits[edit],
        }
    }

    fn start_node(&mut self) -> Result<usize, String> {
        let (id, ppm) = (self.nodes.len(), self.random.signed(MAX_DRIFT_PPM));
        let link = NodeLink::new(id, &self.world, self.random.fork(), self.scenario.timing);
        let time = &self.world.time;
        let wall = self.server.clock.at(0).0.as_micros() + time.now() + self.random.below(50_000);
        let booted = 1_000_000 + self.random.below(1_000_000_000);
        let parts = NodeParts {
            id,
            link,
            clock: MachineClock::new(time.clone(), wall, ppm),
            lease_clock: MachineClock::new(time.clone(), booted, ppm),
            rules: compile_rules(self.rules_of(self.version))?,
            bug: self.bug,
        };
        let node = Node::start(parts, &self.world, &self.spawner, &self.reports);
        node.set_node_count(u32::try_from(self.scenario.nodes).unwrap_or(1));
        self.nodes.push(node);
        Ok(id)
    }

    /// Nodes that reach the store learn how many others do.
    fn send_heartbeats(&self) {
        if self.world.now() < self.server_stopped_until || self.scenario.rules[0].is_local {
            return;
        }
        let up = || self.fleet.iter().map(|id| &self.nodes[*id]).filter(|node| node.link.is_up());
        let count = u32::try_from(up().count()).unwrap_or(1);
        up().for_each(|node| node.set_node_count(count));
    }

    fn inject(&mut self, kind: FaultKind) -> Result<(), String> {
        self.world.trace.record(1, || format!("fault: {kind:?}"));
        let now = self.world.now();
        match kind {
            FaultKind::Cut { node } => self.link(node).cut(true),
            FaultKind::Stall { node, until } => self.link(node).stall_until(until),
            FaultKind::SlowNetwork { node, extra } => self.link(node).set_extra_delay(extra),
            FaultKind::Heal { node } => self.link(node).reconnect(),
            FaultKind::StoreStops { until } => self.server_stopped_until = until,
            FaultKind::StoreLosesState => {
                self.server.lose_state();
                self.checker.bounds.values_mut().for_each(|bound| bound.lose_state(now));
            }
            FaultKind::Replicate => self.server.replicate(),
            FaultKind::FailOver => {
                self.server.fail_over();
                self.checker.bounds.values_mut().for_each(|bound| bound.lose_state(now));
            }
            FaultKind::StoreClockSteps { micros } => {
                self.server.clock.step(micros);
                self.checker.bounds.values_mut().for_each(|bound| bound.step(micros, now));
            }
            FaultKind::Kill { node } => return self.replace_node(node),
            FaultKind::Pause { node } => self.executor.pause(self.fleet[node]),
            FaultKind::Resume { node } => self.executor.resume(self.fleet[node]),
            FaultKind::Edit(index) => self.begin_edit(index + 1),
        }
        Ok(())
    }

    fn link(&self, place: usize) -> &NodeLink {
        &self.nodes[self.fleet[place]].link
    }

    fn replace_node(&mut self, place: usize) -> Result<(), String> {
        let old = self.fleet[place];
        self.executor.kill(old);
        self.nodes[old].link.cut(true);
        let new = self.start_node()?;
        self.fleet[place] = new;
        if let Some(edit) = &mut self.edit {
            edit.missing.retain(|node| *node != old);
        }
        self.finish_edit();
        Ok(())
    }

    /// The nodes receive new rules within 200 ms.
    fn begin_edit(&mut self, version: usize) {
        let (rules, now) = (self.rules_of(version).to_vec(), self.world.now());
        let main = rules[0];
        let Some(bound) = self.checker.bounds.get_mut(main.id) else { return };
        let disturbance = bound.begin_edit(main, now);
        self.checker.consider_leases(&rules);
        self.version = version;
        self.edit = Some(EditInProgress { version, disturbance, missing: self.fleet.clone() });
        for node in &self.fleet {
            let after = self.random.below(200_000);
            self.nodes[*node].install(after, version, rules.clone());
        }
    }

    fn finish_edit(&mut self) {
        let Some(edit) = self.edit.take_if(|edit| edit.missing.is_empty()) else { return };
        let (now, main) = (self.world.now(), self.rules_of(edit.version)[0]);
        if let Some(bound) = self.checker.bounds.get_mut(main.id) {
            bound.finish_edit(edit.disturbance, main, now);
        }
        let next = edit.version;
        let at = now + 600_000;
        if next < self.scenario.edits.len() && at < self.scenario.faults_end - 300_000 {
            let index = self.scenario.faults.len();
            let kind = FaultKind::Edit(next);
            self.scenario.faults.push(crate::fault::Fault { at, kind });
            self.world.schedule(at, Event::Fault(index));
        }
    }

    fn process_reports(&mut self) {
        for report in self.reports.take() {
            let result = self.process_report(report);
            if let Err(violation) = result {
                self.violation.get_or_insert(violation);
            }
        }
    }

    fn process_report(&mut self, report: Report) -> Result<(), String> {
        let now = self.world.now();
        let (trace, code) = (&self.world.trace, code_of(&report));
        trace.record(code, || format!("{report:?}"));
        match report {
            Report::Decided { node, request, admitted: true, charges, .. } => {
                self.admitted += 1;
                self.checker.admit(node, now, &request, charges, &mut self.server.ledger)
            }
            Report::Decided { .. } => Ok(()),
            Report::Refunds { request } => {
                self.checker.refund(now, request);
                Ok(())
            }
            Report::Installed { node, version } => {
                if let Some(edit) = self.edit.as_mut().filter(|edit| edit.version == version) {
                    edit.missing.retain(|missing| *missing != node);
                }
                self.finish_edit();
                Ok(())
            }
        }
    }

    fn check_now(&mut self, is_end: bool) -> Result<(), String> {
        if let Some(wrong) = &self.server.ledger.wrong_refund {
            return Err(wrong.clone());
        }
        self.checker.check_bounds(self.world.now(), is_end)?;
        for node in &self.nodes {
            let Some(stats) = node.limiter.lease_stats() else { continue };
            let used = stats.units_spent + stats.units_held + stats.units_returned;
            if used + stats.units_expired > stats.units_granted {
                return Err(format!("node {} spends more than it was granted: {stats:?}", node.id));
            }
        }
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), String> {
        self.check_use()?;
        self.stop_demand();
        self.check_now(true)?;
        let mut unknown: BTreeMap<Fingerprint, u64> = BTreeMap::new();
        for node in &self.nodes {
            let outcomes = node.link.unknown.lock();
            let outcomes = outcomes.unwrap_or_else(std::sync::PoisonError::into_inner);
            for (fingerprint, cost) in outcomes.iter() {
                *unknown.entry(*fingerprint).or_default() += cost;
            }
        }
        let rules = self.rules_of(self.version).iter();
        let exact: Vec<String> =
            rules.filter(|rule| rule.id == "exact").map(|rule| rule.id.to_owned()).collect();
        if self.scenario.rules[0].is_local || self.nodes.len() > self.fleet.len() {
            // Settlement writes usage once more, and a killed node forgets what it charged.
            return Ok(());
        }
        self.checker.check_all_or_none(&self.server.ledger, &unknown, &exact)
    }

    /// Lets what is under way end, without new requests.
    fn stop_demand(&mut self) {
        let end = self.world.now() + 2_000_000;
        for stream in &mut self.scenario.streams {
            stream.gap = 100_000_000;
        }
        self.scenario.measured = 0;
        self.run_until(end);
    }

    /// The fleet uses 98 % of what the lending policy of the first rule allows.
    fn check_use(&self) -> Result<(), String> {
        let measured = self.scenario.measured;
        if measured == 0 {
            return Ok(());
        }
        let from = self.scenario.faults_end + RECOVERY;
        let used = self.checker.main_admitted(from, from + measured);
        let rule = self.main_rule();
        let (requests, window) = (rule.requests, rule.window_ms * 1_000);
        let ttl = rule.lease.filter(|lease| !lease.is_plus_ttl).map_or(0, |it| it.ttl_ms * 1_000);
        // While the store is short, a node learns up to half a lease late that a window has room.
        let lag = rule.ttl_micros() / 2;
        let allowed = match rule.algorithm {
            Algorithm::SlidingWindowLog if ttl == 0 => requests * (measured / window),
            Algorithm::SlidingWindowLog => requests * measured / (window + ttl + lag),
            // The weighted count of the previous window is rounded up: one request a window.
            Algorithm::SlidingWindowCounter => {
                (requests * window / (window + ttl) - 1) * (measured / window) * window
                    / (window + lag)
            }
            _ => requests * measured / window,
        };
        let slack = 2 + 2 * self.fleet.len() as u64;
        // A node with about as many requests as make a counter worth leasing wastes some units.
        let requests_in_ttl = 5 * rule.rate() * ttl / 1_000_000 / (self.fleet.len() as u64 + 7) / 2;
        let percent = if (3..=16).contains(&requests_in_ttl) { 95 } else { 98 };
        if (used + slack) * 100 < allowed * percent {
            return Err(format!(
                "rule {}: {used} used of {allowed} within {measured} µs of sufficient demand",
                rule.id
            ));
        }
        Ok(())
    }

    fn summary(&self) -> RunSummary {
        let (events, digest) = self.world.trace.digest();
        let spent = |node: &Node| node.limiter.lease_stats().map_or(0, |stats| stats.units_spent);
        RunSummary {
            decided: self.decided,
            admitted: self.admitted,
            store_calls: self.nodes.iter().map(|node| node.link.calls()).sum(),
            leased_units: self.nodes.iter().map(spent).sum(),
            events,
            digest,
            violation: self.violation.clone(),
            trace: self.world.trace.lines(),
        }
    }
}

fn code_of(report: &Report) -> u64 {
    match report {
        Report::Decided { node, request, admitted, by, .. } => {
            let by = by.name().len() as u64;
            (*node as u64) << 48 | request.number << 8 | u64::from(*admitted) << 4 | by
        }
        Report::Refunds { request } => 1 << 60 | request,
        Report::Installed { node, version } => 2 << 60 | (*node as u64) << 8 | *version as u64,
    }
}

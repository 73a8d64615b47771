//! Who is asked: one server, or the servers of a cluster.

use std::sync::Arc;

use tokio::time::Instant;

use crate::address::Topology;
use crate::ask::Ask;
use crate::cluster::Cluster;
use crate::connect::Place;
use crate::keeper::Keeper;
use crate::lane::{Lane, Route};
use crate::link::{Common, Failure, Link};
use crate::name::slot;
use crate::replay::Told;
use crate::stats::{BreakerState, Cause};

/// How often a request follows a slot that moves.
const REDIRECTS: usize = 5;

/// How long to wait for a slot that is being moved.
const TRY_AGAIN: std::time::Duration = std::time::Duration::from_millis(1);

/// Who is asked.
#[derive(Debug)]
pub(crate) struct Router {
    servers: Servers,
    _keeper: Keeper,
}

#[derive(Debug)]
enum Servers {
    One(Arc<Lane>),
    Many(Arc<Cluster>),
}

impl Router {
    pub(crate) fn new(topology: &Topology, common: Arc<Common>) -> Self {
        let (servers, keeper) = match Place::of(topology) {
            Ok(place) => {
                let link = Arc::new(Link::new(place, common));
                let keeper = Keeper::spawn(Arc::clone(&link).keep());
                (Servers::One(Arc::new(Lane::new(link))), keeper)
            }
            Err(seeds) => {
                let cluster = Arc::new(Cluster::new(seeds.to_vec(), common));
                let keeper = Keeper::spawn(Arc::clone(&cluster).keep());
                (Servers::Many(cluster), keeper)
            }
        };
        Self { servers, _keeper: keeper }
    }

    /// Whether keys are spread over slots.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Many(_))
    }

    /// Waits until all servers are asked.
    pub(crate) async fn ready(&self) {
        match &self.servers {
            Servers::One(lane) => lane.link().ready().await,
            Servers::Many(cluster) => cluster.ready().await,
        }
    }

    /// Why some server is not asked, if one is not.
    pub(crate) fn lost(&self) -> Option<String> {
        match &self.servers {
            Servers::One(lane) => lane.link().lost(),
            Servers::Many(cluster) => cluster.lost(),
        }
    }

    /// Every server, and whether it is asked.
    pub(crate) fn breakers(&self) -> Vec<(String, BreakerState)> {
        let lanes = match &self.servers {
            Servers::One(lane) => vec![Arc::clone(lane)],
            Servers::Many(cluster) => cluster.lanes(),
        };
        lanes.iter().map(|lane| lane.link().breaker()).collect()
    }

    /// The server that has a key.
    ///
    /// # Errors
    /// Why none is known to.
    pub(crate) fn link(&self, name: &[u8]) -> Result<Arc<Link>, String> {
        match &self.servers {
            Servers::One(lane) => Ok(Arc::clone(lane.link())),
            Servers::Many(cluster) => cluster.lane(slot(name)).map(|lane| Arc::clone(lane.link())),
        }
    }

    /// Puts a request, whose keys share a slot, to whoever has them; not beyond `deadline`. It is put
    /// a second time only where it surely was not done.
    pub(crate) async fn ask(&self, ask: &Arc<Ask>, deadline: Instant) -> Result<Told, Failure> {
        let answer = self.follow(ask, deadline);
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = "no answer within the deadline".to_owned();
                match ask.give_up() {
                    true => Err(Failure::NotSent(Cause::Timeout, why)),
                    false => Err(Failure::Lost(Cause::Timeout, why)),
                }
            }
        }
    }

    async fn follow(&self, ask: &Arc<Ask>, deadline: Instant) -> Result<Told, Failure> {
        let cluster = match &self.servers {
            Servers::One(lane) => return put(lane, ask, Route::default()).await,
            Servers::Many(cluster) => cluster,
        };
        let slot = ask.items.first().map_or(0, |item| slot(&item.home.name));
        let unknown = |why| Failure::NotSent(Cause::Disconnected, why);
        let mut lane = cluster.lane(slot).map_err(unknown)?;
        let mut route = Route { slot: Some(slot), ..Route::default() };
        let mut redirects = 0..REDIRECTS;
        loop {
            let answer = put(&lane, ask, route).await;
            match &answer {
                Err(Failure::Moved(host)) if redirects.next().is_some() => {
                    (lane, route.asking) = (cluster.moved(slot, host), false);
                    lane.link().ready().await;
                }
                Err(Failure::Ask(host)) if redirects.next().is_some() => {
                    (lane, route.asking) = (cluster.server(host), true);
                    lane.link().ready().await;
                }
                // It may only be the company it was in whose keys are elsewhere.
                Err(Failure::TryAgain) if Instant::now() + TRY_AGAIN < deadline => {
                    route.alone = true;
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                _ => return answer,
            }
        }
    }
}

async fn put(lane: &Arc<Lane>, ask: &Arc<Ask>, route: Route) -> Result<Told, Failure> {
    let answered = lane.submit(Arc::clone(ask), route)?.await;
    let given_up = || Failure::Lost(Cause::Disconnected, "the call was given up".to_owned());
    answered.unwrap_or_else(|_| Err(given_up()))
}

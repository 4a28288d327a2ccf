//! When the network's backend has changed.

use std::time::{Duration, Instant};

use crate::network::Backend;

/// How long other nodes may take to follow a change. In Kubernetes and etcd they say when they have; a file is copied
/// to one after the other.
const FOLLOWED: Duration = Duration::from_secs(60);

/// The way between nodes as this agent knows it, and since when.
#[derive(Debug, Default)]
pub(super) struct BackendSince(Option<(Backend, Instant)>);

impl BackendSince {
    /// Notes the present backend, and says whether others may have another one yet. An agent that begins does not know.
    pub(super) fn others_may_lag(&mut self, backend: &Backend, now: Instant) -> bool {
        let (known, since) = self.0.get_or_insert_with(|| (backend.clone(), now));
        if known != backend {
            (*known, *since) = (backend.clone(), now);
        }
        now.duration_since(*since) < FOLLOWED
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::network::NetworkConfig;

    #[test]
    fn others_have_a_minute_for_each_change() {
        let backend = |kind| {
            let conf = json!({ "Network": "10.244.0.0/16", "Backend": { "Type": kind } });
            NetworkConfig::parse(&conf).unwrap().backend
        };
        let (begun, mut since) = (Instant::now(), BackendSince::default());
        let mut may_lag =
            |kind, at_s| since.others_may_lag(&backend(kind), begun + Duration::from_secs(at_s));
        assert!(may_lag("vxlan", 0) && may_lag("vxlan", 59) && !may_lag("vxlan", 60));
        assert!(may_lag("host-gw", 70) && may_lag("vxlan", 100) && may_lag("vxlan", 159));
        assert!(!may_lag("vxlan", 160));
    }
}

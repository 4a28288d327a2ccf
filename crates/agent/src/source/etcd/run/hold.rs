//! The node's own lease: takes it, keeps it, writes it again when it is gone or says what no longer holds.

use std::time::Duration;

use datapath::Prefixes;
use tokio::time::Instant;

use super::super::choice::{Choice, Fate, Own, choose, fits, is_of};
use super::super::client::{Client, Moment};
use super::super::view::Entry;
use super::super::{Failure, wire};
use super::{AFTER_RACE, Task, draw};
use crate::flannel;
use crate::lease::{Announcement, Lease};
use crate::network::{NetworkConfig, Subnets};

/// After how many lost races in a row everything is read again. flannel gives up after as many.
const RACES_MAX: u32 = 10;
/// The target of a comparison: the revision of the last change.
const LAST_CHANGE: i32 = 2;

impl Task<'_> {
    /// Sees to it that the node has a lease and that it says what the node announces.
    pub(super) async fn look_after_own(&mut self, client: &Client) -> Result<(), Failure> {
        let Some(node) = self.announced.borrow_and_update().clone() else { return Ok(()) };
        if let Some(own) = self.own.clone() {
            match own.fate(&self.view, &node) {
                Fate::Held
                    if own.announcement == node && self.renew_at.is_none_or(|at| at > Instant::now()) =>
                {
                    self.warn_of_held(&own);
                    return Ok(());
                }
                Fate::Held | Fate::Spoilt => return self.write(client, own.name, own.pods, node, None).await,
                Fate::Claimed => {
                    tracing::warn!(
                        "a machine with a copy of this node's key has taken the lease {}; taking it back",
                        own.name
                    );
                    return self.write(client, own.name, own.pods, node, None).await;
                }
                Fate::Gone => {
                    tracing::warn!("lease {} of this node is gone from etcd; taking it again", own.name);
                }
                Fate::Lost(why) => {
                    tracing::warn!("{why}; this node takes another prefix");
                    self.held = Prefixes::default();
                }
            }
            // What was wrong with that one says nothing of the next.
            (self.own, self.renew_at, self.warned) = (None, None, None);
        }
        let Some(subnets) = self.subnets() else { return Ok(()) };
        let key = node.key().filter(|_| self.may_claim);
        match choose(&self.view, &subnets, &node, key, &self.previous, draw) {
            Ok(Choice::Keep { name }) => {
                let pods = self.view.get(&name).map(|entry| entry.pods.clone()).unwrap_or_default();
                self.write(client, name, pods, node, None).await
            }
            Ok(Choice::Take { pods, instead_of }) => {
                self.write(client, flannel::subnet_key(&pods), pods, node, instead_of).await
            }
            Err(none_free) => {
                self.warn_once(none_free.to_string());
                Ok(())
            }
        }
    }

    /// How nodes divide the network; none if the configuration does not say it.
    fn subnets(&mut self) -> Option<Vec<Subnets>> {
        let parsed = NetworkConfig::parse(self.network.as_ref()?).and_then(|config| config.subnets());
        let hindered = |error| {
            self.warn_once(format!("this node can take no prefix: {} says that {error}", self.config_key));
        };
        parsed.map_err(hindered).ok()
    }

    /// Writes the node's entry, unless somebody has changed it since we heard of it last, and deletes
    /// another one for it.
    async fn write(
        &mut self,
        client: &Client,
        name: String,
        pods: Prefixes,
        node: Announcement,
        instead_of: Option<String>,
    ) -> Result<(), Failure> {
        let known = self.view.get(&name);
        let created = known.map(|entry| entry.created);
        let is_claim = || known.is_some_and(|entry| entry.parsed.is_ok() && !is_of(entry, &node));
        let is_claimed = self.own.as_ref().map_or_else(is_claim, |own| own.is_claimed);
        let granted = match known.is_some_and(Entry::is_reservation) {
            true => None,
            false => Some(client.grant(self.source.ttl).await?),
        };
        let lease = granted.as_ref().map_or(0, |granted| granted.id);
        let transaction = self.transaction(&name, &node, lease, instead_of.as_deref());
        // If its outcome stays unknown, the entry is found later by the node's address, or the lease expires unused.
        let done = client.commit(transaction).await?;
        if !done.succeeded {
            if granted.is_some() {
                // It expires anyway.
                let _ = client.revoke(lease).await;
            }
            return self.lose_race();
        }
        let changed = done.at.revision;
        self.seen = self.seen.map(|seen| Moment { revision: seen.revision.max(changed), ..seen });
        if let Some(old) = instead_of {
            self.view.remove(&old);
        }
        let created = created.unwrap_or(changed);
        let parsed = Ok(Lease { pods: pods.clone(), node: node.clone() });
        self.view.insert(name.clone(), Entry { created, changed, lease, pods: pods.clone(), parsed });
        if self.own.is_none() {
            let known_by = if is_claimed { ", which has its key and another address" } else { "" };
            tracing::info!("this node has the lease {name} in etcd{known_by}");
        }
        self.may_claim = false;
        self.renew_at = granted.map(|granted| Instant::now() + self.renew_after(granted.ttl_s));
        (self.held, self.previous, self.races, self.warned) = (pods.clone(), pods.clone(), 0, None);
        self.own = Some(Own { name, pods, lease, announcement: node, is_claimed });
        Ok(())
    }

    fn transaction(
        &self,
        name: &str,
        node: &Announcement,
        lease: i64,
        instead_of: Option<&str>,
    ) -> wire::Transaction {
        let key = |name: &str| self.key_of(name);
        let unchanged = |name: &str| wire::Compare {
            target: LAST_CHANGE,
            key: key(name),
            mod_revision: Some(self.view.get(name).map_or(0, |entry| entry.changed)),
        };
        let value = flannel::announcement_value(node).to_string().into_bytes();
        let put = wire::PutRequest { key: key(name), value, lease };
        let put = wire::Operation { put: Some(put), ..wire::Operation::default() };
        let delete = |old| wire::Operation {
            delete: Some(wire::DeleteRequest { key: key(old) }),
            ..wire::Operation::default()
        };
        wire::Transaction {
            compare: instead_of.into_iter().chain([name]).map(unchanged).collect(),
            success: instead_of.map(delete).into_iter().chain([put]).collect(),
        }
    }

    /// The watch will report a change that was made meanwhile.
    fn lose_race(&mut self) -> Result<(), Failure> {
        self.races += 1;
        if self.races >= RACES_MAX {
            (self.races, self.next_revision) = (0, None);
            return Err(Failure::Races(RACES_MAX));
        }
        self.look_within(AFTER_RACE);
        self.renew_at = self.renew_at.map(|at| at.max(Instant::now() + AFTER_RACE));
        Ok(())
    }

    fn renew_after(&self, ttl_s: i64) -> Duration {
        let ttl = Duration::from_secs(u64::try_from(ttl_s).unwrap_or(0));
        ttl - self.source.renew_margin.min(ttl / 2)
    }

    /// Says what is odd about a lease that is held. Its successor, while the agent is replaced, or another node with
    /// the same address may write there. That is not written over: the two would write in turns. A network that is
    /// divided otherwise by now does not take a prefix from a node whose pods have it.
    fn warn_of_held(&mut self, own: &Own) {
        let parsed = self.view.get(&own.name).map(|entry| &entry.parsed);
        let division =
            self.network.as_ref().and_then(|network| NetworkConfig::parse(network).ok()?.subnets().ok());
        if parsed.is_some_and(|parsed| parsed.as_ref().is_ok_and(|lease| lease.node != own.announcement)) {
            self.warn_once(format!("another agent says something else of this node in {}", own.name));
        } else if division.is_some_and(|subnets| !fits(&own.pods, &subnets)) {
            self.warn_once(format!(
                "{} gives nodes other prefixes now than {}, which this node keeps; its agent takes one of those when it is \
                 restarted",
                self.config_key, own.pods
            ));
        } else {
            self.warned = None;
        }
    }

    fn warn_once(&mut self, warning: String) {
        if self.warned.as_ref() != Some(&warning) {
            tracing::warn!("{warning}");
            self.warned = Some(warning);
        }
    }
}

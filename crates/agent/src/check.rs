//! Whether this node reaches the others and their pods' network, asked with packets; and where it does not, why, as far
//! as that is to be seen from here.
//!
//! Nothing is made on the host. What is asked of another node's pods' network always answers, whatever its attach is:
//! the address of its tunnel device where the network has tunnels; and an echo request to its pods that ends on the
//! node, which as a router has to say so.

mod echoes;
mod reasons;
mod row;
mod scene;
mod serve;
mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use datapath::Family;
use linux::procfs::Procfs;
use node::Home;

pub use self::row::{CheckedFamily, CheckedPeer, CheckedWay, Reason, ReasonKind, Row, SCHEMA};
pub(crate) use self::serve::Checks;

use self::echoes::{EchoResult, Outcome, Question};
use self::reasons::Findings;
use self::scene::Scene;
use self::targets::{Target, Targets};
use crate::path_mtu;
use crate::status::{PeerStatus, Status, now_s, word};

/// A network as its agent has left it in files: the state and the journals. No agent has to run.
#[derive(Debug, Clone)]
pub struct Network {
    /// Its name, after which the file of the state and the unit of the journals are called.
    pub name: String,
    /// The directory of the file with the agent's state.
    pub status: PathBuf,
    /// The book in which its unit has the journals.
    pub home: Home,
}

/// Why nothing can be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No agent has written its state.
    #[error("{0}")]
    Status(String),
    /// A peer that the agent does not know is asked for.
    #[error("the agent has no lease of a node {peer}; those that it has are {known}")]
    #[expect(missing_docs, reason = "the names say it")]
    Unknown { peer: String, known: String },
    /// The lease of a peer that is asked for went, or got other addresses, while it was asked.
    #[error("check {0}: its lease has changed meanwhile")]
    Changed(String),
    /// A call to the kernel failed, or a socket cannot be read.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
}

/// Checks the ways to the peers that are named, or to all; in the calling thread's network namespace. It takes some
/// seconds where something does not answer.
///
/// # Errors
/// The agent's state cannot be read, a name is unknown, or the kernel refuses what asking takes (`CAP_NET_RAW`).
pub fn check(network: &Network, peers: &[String]) -> Result<Row, CheckError> {
    let at_s = now_s();
    let path = Status::path(&network.status, &network.name);
    let status = Status::read(&path).map_err(CheckError::Status)?;
    if let Some(peer) = peers.iter().find(|peer| !status.peers.contains_key(*peer)) {
        let known: Vec<&str> = status.peers.keys().map(String::as_str).collect();
        return Err(CheckError::Unknown { peer: peer.clone(), known: known.join(", ") });
    }
    let wanted = |name: &String| peers.is_empty() || peers.contains(name);
    let chosen: BTreeMap<&String, &PeerStatus> =
        status.peers.iter().filter(|(name, _)| wanted(name)).collect();
    let mut scene = Scene::open(network, &status)?;
    let targets = Targets::of(&status, &scene, &chosen)?;
    let ask = |questions: &[Question]| echoes::ask(&targets.sockets, questions);
    let results = echoes::ask_until_sure(&targets.questions, ask, lost_here)?;
    let carried = carried(&status, &targets, &results);
    // The agent may have ended, and `down` have removed its state: the peers are then those that were asked.
    let chosen = Status::read(&path).map_or(chosen.clone(), |now| unchanged(&chosen, &now));
    if let Some(peer) = peers.iter().find(|peer| !chosen.contains_key(peer)) {
        return Err(CheckError::Changed(peer.clone()));
    }
    let families: BTreeSet<Family> = targets.targets.iter().map(|target| target.family).collect();
    let mut row = Row {
        schema: SCHEMA,
        network: status.network.clone(),
        pods: status.pods.clone(),
        at_s,
        here: reasons::here(&status, &families)?,
        peers: BTreeMap::new(),
    };
    for (name, peer) in chosen {
        let of_peer = targets.targets.iter().filter(|target| target.peer == *name);
        let mut checked = CheckedPeer { pods: peer.pods.clone(), is_reached: true, ..CheckedPeer::default() };
        for target in of_peer {
            let family = checked_family(target, &targets, &results);
            if !family.is_well() {
                let findings =
                    Findings { peer: name, target, targets: &targets, results: &results, carried: &carried };
                checked.reasons.extend(findings.reasons(&mut scene)?);
            }
            checked.families.insert(word(target.family), family);
        }
        checked.reasons.extend(reasons::of_lease(peer));
        checked.is_reached =
            checked.reasons.is_empty() && checked.families.values().all(CheckedFamily::is_well);
        row.peers.insert(name.clone(), checked);
    }
    Ok(row)
}

/// The peers that the agent knows as they were when they were asked. Of the others it has taken the ways back
/// meanwhile, so that they would be missed.
fn unchanged<'a>(
    asked: &BTreeMap<&'a String, &'a PeerStatus>,
    now: &Status,
) -> BTreeMap<&'a String, &'a PeerStatus> {
    let is_same = |name: &str, peer: &PeerStatus| {
        now.peers.get(name).is_some_and(|now| (&now.pods, &now.public) == (&peer.pods, &peer.public))
    };
    asked.iter().filter(|(name, peer)| is_same(name, peer)).map(|(name, peer)| (*name, *peer)).collect()
}

/// How many packets this machine's CPUs have dropped since they had too many (`net.core.netdev_max_backlog`),
/// of all network namespaces.
fn lost_here() -> Option<u64> {
    let cpus = Procfs::kernel().softnet().ok()?;
    Some(cpus.iter().map(|cpu| cpu.dropped).sum())
}

/// How much the ways carry on which small packets pass and full ones do not.
fn carried(status: &Status, targets: &Targets, results: &[EchoResult]) -> path_mtu::PathMtus {
    let is_narrow = |result: &EchoResult| {
        result.small.is_answered() && result.full.as_ref().is_some_and(|full| !full.is_answered())
    };
    let narrow = targets
        .targets
        .iter()
        .filter(|target| target.question_numbers().any(|index| results.get(index).is_some_and(is_narrow)));
    let mut searched = path_mtu::Targets::new();
    for target in narrow {
        for index in [Some(target.node), target.tunnel].into_iter().flatten() {
            let question = &targets.questions[index];
            searched.extend(question.full_bytes.map(|bytes| (question.to, bytes)));
        }
    }
    if searched.is_empty() {
        return path_mtu::PathMtus::new();
    }
    tracing::debug!(network = status.network, ways = searched.len(), "searching for what the ways carry");
    path_mtu::search(&searched)
}

fn checked_family(target: &Target, targets: &Targets, results: &[EchoResult]) -> CheckedFamily {
    let way = |index: usize| {
        let (question, result) = (&targets.questions[index], &results[index]);
        checked_way(question.to, question.full_bytes, result)
    };
    CheckedFamily {
        by: target.by.clone(),
        node: way(target.node),
        tunnel: target.tunnel.map(way),
        pods: way(target.pods),
        as_pod: target.as_pod.map(way),
    }
}

fn checked_way(address: IpAddr, full_bytes: Option<u32>, result: &EchoResult) -> CheckedWay {
    let rtt_us = match &result.small {
        Outcome::Answered { rtt } => Some(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
        Outcome::Refused(_) | Outcome::Unsent(_) | Outcome::Silent => None,
    };
    CheckedWay {
        address,
        is_reached: result.small.is_answered(),
        rtt_us,
        full_bytes,
        carries_full: result.full.as_ref().map(Outcome::is_answered),
        instead: reasons::instead(result.full.as_ref().unwrap_or(&result.small)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_gone_or_moved_while_it_was_asked_is_left_out() {
        let peer = |public: &str, pods: &str| PeerStatus {
            pods: vec![pods.to_owned()],
            public: vec![public.to_owned()],
            by: BTreeMap::new(),
            path_mtu: None,
            why_not: None,
            since_s: 0,
        };
        let asked = [
            ("gone", peer("192.0.2.1", "10.244.1.0/24")),
            ("moved", peer("192.0.2.2", "10.244.2.0/24")),
            ("renewed", peer("192.0.2.3", "10.244.3.0/24")),
            ("same", peer("192.0.2.4", "10.244.4.0/24")),
        ]
        .map(|(name, peer)| (name.to_owned(), peer));
        let mut now = Status { peers: asked.iter().cloned().collect(), ..Status::default() };
        now.peers.remove("gone");
        now.peers.insert("moved".to_owned(), peer("192.0.2.9", "10.244.2.0/24"));
        now.peers.insert("renewed".to_owned(), peer("192.0.2.3", "10.244.9.0/24"));
        now.peers.get_mut("same").unwrap().path_mtu = Some(1400);
        let asked: BTreeMap<&String, &PeerStatus> = asked.iter().map(|(name, peer)| (name, peer)).collect();
        assert!(unchanged(&asked, &now).into_keys().eq(["same"]));
    }
}

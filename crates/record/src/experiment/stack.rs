//! The stack that a candidate's server answers on, and how it waits: `stack = { kind = "afxdp", wait = "spin" }`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment_error::{ExperimentError, out_of_range};
use crate::{Candidate, Experiment, Measure, Placement, ServerKind, Underlay, WorkloadKind};

/// What a candidate's server answers on. All that differ from the default are hostgap's own responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stack {
    /// Whose TCP/IP it is.
    #[serde(skip_serializing_if = "is_usual")]
    pub kind: StackKind,
    /// What the server does while nothing comes.
    #[serde(skip_serializing_if = "is_usual")]
    pub wait: StackWait,
}

/// Whose TCP/IP a server answers by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackKind {
    /// TCP/IP of the kernel.
    #[default]
    Kernel,
    /// One of our own in the server's process, which takes frames from the node's link by AF_XDP.
    Afxdp,
    /// The same behind a port of a switch in user space, with which it shares memory.
    VhostUser,
    /// None: messages by RDMA verbs, over a wire of their own.
    Verbs,
}

/// What a server does while nothing comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackWait {
    /// It sleeps until the kernel wakes it.
    #[default]
    Sleep,
    /// It looks again and again, and sleeps when nothing has come for 10 ms. By RDMA verbs the client looks for its
    /// answers in the same way.
    Spin,
}

impl StackWait {
    /// Whether the threads that wait so hardly sleep. Under `SCHED_FIFO` they would keep the kernel's own work from
    /// their CPU, so they run under the normal scheduling policy.
    pub fn hardly_sleeps(self) -> bool {
        self == StackWait::Spin
    }
}

/// The longest packet of a stack of our own, in bytes: it fits into a frame of AF_XDP here, and on a link of veth with
/// XDP.
pub const OWN_STACK_MTU_MAX: u32 = 1500;
/// The most connections: a stack of our own visits each of them for every packet.
const CONNECTIONS_MAX: u32 = 512;
/// The headers before the bytes of a datagram, of the family that has the longer ones (IPv6, UDP).
const DATAGRAM_HEADERS: u32 = 48;
/// The path whose switches have threads that poll.
const POLLING: &str = "ovs-dpdk+direct";

impl Stack {
    /// Whether it is the kernel's, and the server sleeps.
    pub fn is_usual(&self) -> bool {
        *self == Stack::default()
    }

    /// Whether it is a TCP/IP stack of our own.
    pub fn is_own(&self) -> bool {
        match self.kind {
            StackKind::Kernel | StackKind::Verbs => false,
            StackKind::Afxdp | StackKind::VhostUser => true,
        }
    }
}

impl fmt::Display for Stack {
    /// What differs from the usual: `afxdp, spinning`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.kind, self.wait) {
            (StackKind::Kernel, StackWait::Sleep) => "kernel",
            (StackKind::Kernel, StackWait::Spin) => "spinning",
            (StackKind::Afxdp, StackWait::Sleep) => "afxdp",
            (StackKind::Afxdp, StackWait::Spin) => "afxdp, spinning",
            (StackKind::VhostUser, StackWait::Sleep) => "vhost-user",
            (StackKind::VhostUser, StackWait::Spin) => "vhost-user, spinning",
            (StackKind::Verbs, StackWait::Sleep) => "verbs",
            (StackKind::Verbs, StackWait::Spin) => "verbs, polling",
        })
    }
}

impl Experiment {
    /// Checks that the stack of a candidate can answer the workload.
    pub(crate) fn validate_stack(&self, candidate: &Candidate) -> Result<(), ExperimentError> {
        if self.exact() && candidate.path == POLLING {
            let why = "instructions are counted, and those of its switches, which poll, would be too";
            return Err(out_of_range("candidates.path", &candidate.path, why));
        }
        let stack = candidate.stack;
        if stack.is_usual() {
            return Ok(());
        }
        let refused = |why: &str| Err(out_of_range("candidates.stack", stack, why));
        if self.workload.server == ServerKind::Nginx {
            return refused(
                "nginx has the kernel's and sleeps; with `server = \"hostgap\"` hostgap's own responder answers all",
            );
        }
        if self.workload.kind.measure() != Measure::Latency {
            return refused("only a workload whose requests are answered has a server that could have it");
        }
        if stack.wait == StackWait::Spin && self.exact() {
            return refused("instructions are counted, and those of spinning would be too");
        }
        let longest = self.workload.body_bytes.iter().max().copied().unwrap_or(0);
        let most = self.underlay.mtu.min(OWN_STACK_MTU_MAX) - DATAGRAM_HEADERS;
        if stack.is_own() && self.workload.kind == WorkloadKind::UdpRr && longest > most {
            let why = format!("it sends no fragments, so a datagram has at most {most} bytes on this wire");
            return refused(&why);
        }
        match stack.kind {
            StackKind::Kernel => Ok(()),
            StackKind::Afxdp => self.refuses_afxdp(candidate).map_or(Ok(()), refused),
            StackKind::VhostUser => self.refuses_vhost_user(candidate).map_or(Ok(()), refused),
            StackKind::Verbs => self.refuses_verbs(candidate).map_or(Ok(()), refused),
        }
    }

    /// Why a server cannot take the frames of this experiment by AF_XDP.
    fn refuses_afxdp(&self, candidate: &Candidate) -> Option<&'static str> {
        if candidate.path != "host" {
            return Some("frames are taken from the node's own link: take `path = \"host\"`");
        }
        if self.placement == Placement::SameNode {
            return Some("on one node `host` is the loopback link, from which no frames can be taken");
        }
        if candidate.filter.is_some() || self.flood.is_some() {
            return Some(
                "a link has one program of XDP, and that of the flood's filter would be in its place",
            );
        }
        let is_limited = |wire: &Option<crate::Wire>| wire.is_some_and(|wire| wire.line_rate.is_some());
        if self.underlay.line_rate.is_some()
            || [&self.underlay.to_client, &candidate.underlay.to_client].into_iter().any(is_limited)
        {
            return Some("what it sends passes by the queueing discipline that limits a line's rate");
        }
        self.refuses_own(candidate)
    }

    /// Why a server cannot have a switch's port to itself in this experiment.
    fn refuses_vhost_user(&self, candidate: &Candidate) -> Option<&'static str> {
        if candidate.path != POLLING {
            return Some("it shares memory with a switch that has DPDK: take `path = \"ovs-dpdk+direct\"`");
        }
        if !candidate.in_container.has_server() {
            return Some("it has a pod's port of the switch: the server is in a container");
        }
        if !candidate.tune.is_empty() {
            return Some("its pod has no link, socket or route to which settings could belong");
        }
        if candidate.filter.is_some() || self.flood.is_some() {
            return Some("the flood is for servers at the node's own link");
        }
        self.refuses_own(candidate)
    }

    /// Why no stack of our own can answer this experiment.
    fn refuses_own(&self, candidate: &Candidate) -> Option<&'static str> {
        if !matches!(self.workload.kind, WorkloadKind::Http | WorkloadKind::UdpRr) || self.workload.tls {
            return Some(
                "a stack of our own answers HTTP on connections that stay (http) and datagrams (udp-rr)",
            );
        }
        if !candidate.proxy.is_empty() {
            return Some("what is redirected into a proxy is the kernel's");
        }
        if candidate.plant.is_some() {
            return Some("a stack of our own holds nothing back");
        }
        if self.underlay.mtu > OWN_STACK_MTU_MAX {
            return Some("an MTU of at most 1500 bytes fits into its frames");
        }
        let connections = candidate.connections.unwrap_or(self.workload.connections);
        if connections > CONNECTIONS_MAX {
            return Some("it visits every connection for each packet, so 512 are the most");
        }
        None
    }

    /// Why messages of this experiment cannot go by RDMA verbs. Their wire is one of their own between two devices of
    /// software, which only carries them.
    fn refuses_verbs(&self, candidate: &Candidate) -> Option<&'static str> {
        if self.workload.kind != WorkloadKind::Verbs {
            return Some("messages by RDMA verbs are the workload `verbs`");
        }
        if self.placement == Placement::SameNode {
            return Some("its wire is between two nodes");
        }
        if self.workload.ipv6 {
            return Some("its wire has addresses of IPv4");
        }
        let plain =
            Underlay { mtu: self.underlay.mtu, steering: self.underlay.steering, ..Underlay::default() };
        if self.underlay.with(&candidate.underlay) != plain {
            return Some("its wire is one of its own, which delays, loses and limits nothing");
        }
        if !candidate.tune.is_empty() {
            return Some("its packets pass no link of a node or a pod, to which settings belong");
        }
        if candidate.plant.is_some() {
            return Some("a known delay would be that of a server over TCP");
        }
        if candidate.filter.is_some() || self.flood.is_some() {
            return Some("the flood comes by another wire");
        }
        None
    }
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(workload: &str, candidate: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!(
            "schema = 1\nname = \"x\"\n{workload}\n[[candidates]]\npath = \"host\"\n{candidate}"
        ))
    }

    #[test]
    fn it_is_read_written_and_named() {
        for (stack, title) in [
            ("kind = \"afxdp\"", "host, afxdp"),
            ("wait = \"spin\"", "host, spinning"),
            ("kind = \"afxdp\", wait = \"spin\"", "host, afxdp, spinning"),
        ] {
            let experiment = with("", &format!("stack = {{ {stack} }}")).unwrap();
            assert_eq!(experiment.candidates[0].title(), title);
            assert_eq!(Experiment::from_toml(&experiment.to_toml()).unwrap(), experiment);
        }
        assert!(!with("", "name = \"plain\"").unwrap().to_toml().contains("stack"));
    }

    #[test]
    fn a_switch_s_port_is_a_pod_s() {
        let with = |workload: &str, candidate: &str| {
            Experiment::from_toml(&format!(
                "schema = 1\nname = \"x\"\n{workload}\n[[candidates]]\npath = \"ovs-dpdk+direct\"\n{candidate}\n\
                 stack.kind = \"vhost-user\"\n"
            ))
        };
        let title = with("", "stack.wait = \"spin\"").unwrap().candidates[0].title();
        assert_eq!(title, "ovs-dpdk+direct, vhost-user, spinning");
        assert!(with("placement = \"same_node\"", "").is_ok());
        for (workload, candidate, why) in [
            ("", "in_container = \"client\"", "the server is in a container"),
            ("", "name = \"x\"\ntune = { tcp_rmem_max = \"1M\" }", "to which settings could belong"),
            ("workload.kind = \"connect\"", "", "HTTP on connections that stay"),
            ("underlay.mtu = 9001", "", "at most 1500 bytes"),
        ] {
            let error = with(workload, candidate).expect_err(why).to_string();
            assert!(error.contains(why), "{why:?} is not in {error:?}");
        }
    }

    #[test]
    fn verbs_are_a_stack_of_their_own_workload() {
        let verbs = "workload.kind = \"verbs\"";
        for (stack, title) in [
            ("stack.kind = \"verbs\"", "host, verbs"),
            ("stack = { kind = \"verbs\", wait = \"spin\" }", "host, verbs, polling"),
        ] {
            let experiment = with(verbs, stack).unwrap();
            assert_eq!(experiment.candidates[0].title(), title);
            assert_eq!(Experiment::from_toml(&experiment.to_toml()).unwrap(), experiment);
        }
        for (workload, candidate, why) in [
            ("workload.kind = \"tcp-rr\"", "", "are the workload `verbs`"),
            ("workload = { kind = \"verbs\", ipv6 = true }", "", "addresses of IPv4"),
            ("workload.kind = \"verbs\"\nplacement = \"same_node\"", "", "between two nodes"),
            ("workload.kind = \"verbs\"\nunderlay.delay = \"1ms\"", "", "delays, loses and limits nothing"),
            (verbs, "tune = { tcp_rmem_max = \"1M\" }", "to which settings belong"),
            (verbs, "name = \"late\"\nplant = { share = \"1%\", delay = \"1ms\" }", "a known delay"),
        ] {
            let error =
                with(workload, &format!("stack.kind = \"verbs\"\n{candidate}")).expect_err(why).to_string();
            assert!(error.contains(why), "{why:?} is not in {error:?}");
        }
        assert!(with(verbs, "stack.kind = \"afxdp\"").is_err(), "it answers no such workload");
    }

    #[test]
    fn what_a_stack_cannot_answer_is_refused() {
        let ours = "stack.kind = \"afxdp\"";
        for (workload, candidate, why) in [
            ("workload.server = \"nginx\"", "stack.wait = \"spin\"", "nginx has the kernel's and sleeps"),
            ("workload.kind = \"tcp-stream\"", "stack.wait = \"spin\"", "only a workload whose requests"),
            (
                "vm = { kernels = [\"debian:6.12\"], exact = true }",
                "stack.wait = \"spin\"",
                "instructions are counted",
            ),
            ("placement = \"same_node\"", ours, "the loopback link"),
            ("workload.kind = \"connect\"", ours, "HTTP on connections that stay"),
            ("workload.tls = true", ours, "HTTP on connections that stay"),
            ("underlay.mtu = 9001", ours, "at most 1500 bytes"),
            ("underlay.line_rate = \"1gbit\"", ours, "the queueing discipline"),
            ("workload.connections = 600", ours, "512 are the most"),
            ("workload = { kind = \"udp-rr\", body_bytes = [1453] }", ours, "at most 1452 bytes"),
            (
                "workload = { kind = \"udp-rr\", body_bytes = [1400] }\nunderlay.mtu = 1350",
                ours,
                "at most 1302 bytes on this wire",
            ),
            ("", "stack.kind = \"afxdp\"\nproxy.server = \"nginx-tcp\"", "redirected into a proxy"),
            ("", "stack.kind = \"dpdk\"", "unknown variant `dpdk`"),
            ("", "stack.kind = \"vhost-user\"", "take `path = \"ovs-dpdk+direct\"`"),
        ] {
            let error = with(workload, candidate).expect_err(candidate).to_string();
            assert!(error.contains(why), "{why:?} is not in {error:?}");
        }
        let pod = "schema = 1\nname = \"x\"\n[[candidates]]\npath = \"docker\"\nstack.kind = \"afxdp\"";
        let error = Experiment::from_toml(pod).unwrap_err().to_string();
        assert_eq!(
            error,
            "`candidates.stack` is afxdp: frames are taken from the node's own link: take `path = \"host\"`"
        );
        assert!(with("workload = { kind = \"udp-rr\", body_bytes = [1452] }", ours).is_ok());
        assert!(
            with("workload = { kind = \"udp-rr\", body_bytes = [1302] }\nunderlay.mtu = 1350", ours).is_ok()
        );
        assert!(with("workload.kind = \"grpc\"", "stack.wait = \"spin\"").is_ok());
    }

    /// Which would count as instructions of requests.
    #[test]
    fn no_instructions_are_counted_beside_threads_that_poll() {
        let of = |path: &str, vm: &str| {
            Experiment::from_toml(&format!(
                "schema = 1\nname = \"x\"\n[[candidates]]\npath = \"{path}\"\n[vm]\nkernels = [\"debian:6.12\"]\n{vm}"
            ))
        };
        let error = of("ovs-dpdk+direct", "exact = true").unwrap_err().to_string();
        assert_eq!(
            error,
            "`candidates.path` is ovs-dpdk+direct: instructions are counted, and those of its switches, which poll, \
             would be too"
        );
        assert!(of("ovs-dpdk+direct", "").is_ok() && of("ovs+direct", "exact = true").is_ok());
    }
}

//! What a data path refuses of a node or a pod.

use super::DataPath;
use crate::{AntiSpoofing, Family, Limits, NodeSpec, Pod, SpecError};

impl DataPath {
    pub(super) fn check_node(&self, node: &NodeSpec) -> Result<(), SpecError> {
        node.check()?;
        self.check_anti_spoofing(node)?;
        self.check_host_link(node)?;
        if self.attach.leads_out() { node.check_pods_apart() } else { Ok(()) }
    }

    /// Refuses a check of what pods send where nothing on the node could make it.
    fn check_anti_spoofing(&self, node: &NodeSpec) -> Result<(), SpecError> {
        if node.network.anti_spoofing.is_some() && self.attach.anti_spoofing() == AntiSpoofing::Never {
            return Err(SpecError {
                what: format!("network {}", node.network.id),
                why: format!(
                    "the addresses of what its pods send are to be checked, and the attach {} of {} has no place for that",
                    self.attach.name(),
                    self.name
                ),
            });
        }
        Ok(())
    }

    /// Refuses a link of the node's own where it would be of no use.
    fn check_host_link(&self, node: &NodeSpec) -> Result<(), SpecError> {
        if node.network.host_link && !self.attach.takes_host_link() {
            return Err(SpecError {
                what: format!("network {}", node.network.id),
                why: format!(
                    "its nodes are to have a link beside their pods', which the attach {} of {} has no use for",
                    self.attach.name(),
                    self.name
                ),
            });
        }
        Ok(())
    }

    /// Refuses ports that its attach could not publish, and those by which nobody could call the pod.
    pub(super) fn check_published(&self, node: &NodeSpec, pod: &Pod) -> Result<(), SpecError> {
        for port in &pod.published {
            let families = port.address.map_or(pod.addresses.families().to_vec(), |at| vec![Family::of(at)]);
            let refusals: Vec<_> =
                families.iter().filter_map(|family| self.attach.refuses_callers(*family)).collect();
            if let Some(why) = refusals.first().filter(|_| refusals.len() == families.len()) {
                return Err(SpecError {
                    what: format!("pod {} of node {}", pod.id, node.id),
                    why: format!("it publishes port {}, and {why}", port.node),
                });
            }
        }
        match pod.published.first() {
            Some(port) if !self.attach.publishes_ports() => Err(SpecError {
                what: format!("pod {} of node {}", pod.id, node.id),
                why: format!(
                    "it publishes port {}, and the attach {} of {} publishes no ports",
                    port.node,
                    self.attach.name(),
                    self.name
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a program in a pod's place where there is no switch that shares memory with it, and what is done at a
    /// pod's link.
    pub(super) fn check_vhost_user(&self, node: &NodeSpec, pod: &Pod) -> Result<(), SpecError> {
        let refused = |why: String| SpecError { what: format!("pod {} of node {}", pod.id, node.id), why };
        if pod.vhost_user && !self.attach.takes_vhost_user() {
            let attach = self.attach.name();
            return Err(refused(format!(
                "a program is to share memory with a switch, and the attach {attach} of {} has none that does",
                self.name
            )));
        }
        if pod.vhost_user && (pod.mac.is_some() || pod.limits != Limits::default()) {
            return Err(refused(
                "a program has its place, and there is no link whose rate or address could be set".to_owned(),
            ));
        }
        Ok(())
    }

    /// Refuses an Ethernet address of the pod's own where it has the wire's.
    pub(super) fn check_mac(&self, node: &NodeSpec, pod: &Pod) -> Result<(), SpecError> {
        match pod.mac {
            Some(mac) if !self.attach.has_own_mac() => Err(SpecError {
                what: format!("pod {} of node {}", pod.id, node.id),
                why: format!(
                    "its Ethernet address is to be {mac}, and pods of {} have that of the node's wire or device, or one that a process chooses",
                    self.name
                ),
            }),
            _ => Ok(()),
        }
    }
}

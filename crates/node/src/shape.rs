//! What a network is like, as the note of its unit has it, and whether another configuration changes what stands.

use cni::Failure;
use datapath::{ATTACHES, DEVICE, NodeSpec, Prefixes};
use linux::IfName;
use plan::Plan;
use serde::{Deserialize, Serialize};

use crate::conf::Conf;
use crate::failures::invalid_conf;

/// What a network's configuration says of more than one container. The unit of one that stands has it as its note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    attach: String,
    bridge: Option<IfName>,
    pub(crate) node: u16,
    pub(crate) wire: IfName,
    pub(crate) mtu: Option<u32>,
    /// That of its containers, where the configuration leaves it to the wire. Not in the notes of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wire_mtu: Option<u32>,
    masquerade: bool,
    /// Not in the notes of networks that stand without it, among them all of earlier versions. At which hook is each
    /// container's own matter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    anti_spoofing: bool,
    /// Likewise not in the notes of networks that stand without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    host_link: bool,
    prefixes: Vec<String>,
    pods: Vec<String>,
}

impl Shape {
    pub(crate) fn of(conf: &Conf, node: &NodeSpec) -> Shape {
        let list = |prefixes: &Prefixes| prefixes.iter().map(|net| net.to_string()).collect();
        Shape {
            attach: conf.path.name.to_owned(),
            bridge: conf.bridge.clone(),
            node: node.id,
            wire: node.wire.clone(),
            mtu: conf.mtu,
            wire_mtu: match conf.mtu {
                None => conf.path.pod_mtu(node).ok(),
                Some(_) => None,
            },
            masquerade: conf.masquerade,
            anti_spoofing: conf.anti_spoofing.is_some(),
            host_link: conf.host_link,
            prefixes: list(&node.network.prefixes),
            pods: list(&node.pods),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("its keys are texts")
    }

    /// That of a unit's note; `None` if it is no such note.
    pub(crate) fn read(note: &str) -> Option<Shape> {
        serde_json::from_str(note).ok()
    }

    /// Whether a note says this.
    pub(crate) fn is_noted(&self, note: &str) -> bool {
        // As earlier versions wrote it.
        let without = || Shape { wire_mtu: None, ..self.clone() }.to_text();
        note == self.to_text() || note == without()
    }

    /// Whether containers that want this can join those that stand as `noted`: the same attach in the same place, with
    /// an MTU and subnets of their own at most.
    pub(crate) fn may_join(&self, noted: &Shape) -> bool {
        self.is_but_for_subnets(&Shape { mtu: self.mtu, ..noted.clone() })
    }

    /// Whether it is the same but for the prefixes of its containers. Where the attach is made without the link to
    /// other nodes, what is known of that does not count: the machine's address may have moved to another one.
    pub(crate) fn is_but_for_subnets(&self, other: &Shape) -> bool {
        let of_wire = if self.needs_wire() { other } else { self };
        let (node, wire) = (of_wire.node, of_wire.wire.clone());
        let (prefixes, pods) = (self.prefixes.clone(), self.pods.clone());
        *self == Shape { node, wire, wire_mtu: self.wire_mtu, prefixes, pods, ..other.clone() }
    }

    fn needs_wire(&self) -> bool {
        let path = ATTACHES.iter().chain([&DEVICE]).find(|path| path.name == self.attach);
        path.is_none_or(|path| path.attach.needs_wire())
    }

    /// The MTU of its containers, as a phrase.
    pub(crate) fn mtu_words(&self) -> String {
        self.mtu.map_or_else(|| "the MTU of the wire".to_owned(), |mtu| format!("an MTU of {mtu} bytes"))
    }

    /// The prefixes of the node's containers, as a phrase.
    pub(crate) fn subnets(&self) -> String {
        self.pods.join(" and ")
    }
}

/// Whether what a network's containers share stays the same with another configuration: the plan for it is the one that
/// was made (`made`). Each container's own part may differ.
///
/// # Errors
/// What was made cannot be read, or no plan can be made.
pub(crate) fn leaves_alone(
    note: &str,
    conf: &Conf,
    node: &NodeSpec,
    made: impl FnOnce() -> Result<Option<Plan>, Failure>,
) -> Result<bool, Failure> {
    let noted = Shape::read(note).filter(|noted| Shape::of(conf, node).may_join(noted));
    let Some(noted) = noted else { return Ok(false) };
    // What stands for the wire of before takes what containers send over a narrower one. The overhead of a tunnel is in
    // neither: no attach of the plugin has one.
    let wire_mtu = node.wire_mtu.max(noted.wire_mtu.unwrap_or(0));
    let plan = conf.path.node_plan(&NodeSpec { wire_mtu, ..node.clone() });
    let plan = plan.map_err(|error| invalid_conf(error.to_string()))?;
    Ok(made()?.is_some_and(|made| made.steps == plan.steps))
}
